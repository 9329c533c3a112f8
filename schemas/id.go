package schemas

import (
	"crypto/sha256"
	"encoding/base32"
)

// MaxIDLength is the most bytes a thread or process id may have. An id becomes one token of a NATS subject, and file
// names under the data folder are made from it.
const MaxIDLength = 128

// DefaultTenant and DefaultCell stand in every subject unless others are set.
const (
	DefaultTenant = "default"
	DefaultCell   = "local"
)

// ValidID says whether s may be a thread id, a process id, a tenant, a cell or a worker id: [A-Za-z0-9_-]{1,128}.
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > MaxIDLength {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// CheckID is nil for a valid id, and else an invalid_argument error that names the field.
func CheckID(field, s string) error {
	if ValidID(s) {
		return nil
	}
	return invalid(field, "%q is not an id: use 1 to %d of the characters A-Z a-z 0-9 _ -", brief(s, 40), MaxIDLength)
}

// idEncoding has only characters that may stand in a subject token and in a file name on any system, upper or lower
// case folded.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// ProcessID is the id of the process that a command with this key starts: a hash, so that whoever knows the key knows
// the process before it runs, and the same key can never name two. 26 characters, "p" and 125 bits in lower-case
// Crockford base32.
func ProcessID(tenant, thread, key string) string {
	h := sha256.New()
	for _, part := range []string{tenant, thread, key} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return "p" + idEncoding.EncodeToString(h.Sum(nil))[:25]
}
