package schemas

import (
	"crypto/sha256"
	"encoding/base32"
)

// DefaultTenant and DefaultCell are the tenant and the cell in subjects unless others are configured.
const (
	DefaultTenant = "default"
	DefaultCell   = "local"
)

// ValidID reports whether s is a valid id of a thread, process, tenant, cell or worker: [A-Za-z0-9_-]{1,128}.
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

// CheckID returns nil for a valid id, else an invalid_argument error with the field's path.
func CheckID(field, s string) error {
	if ValidID(s) {
		return nil
	}
	return invalid(field, "%q is not an id: use 1 to %d of the characters A-Z a-z 0-9 _ -", brief(s, 40), MaxIDLength)
}

// idEncoding uses only characters that are safe in a subject token and in a file name, on case-insensitive systems too.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// ProcessID returns the id of the process that a command with this key starts. It is a hash of the arguments: a caller that
// knows the key knows the process before it runs, and a key never names two processes. The id has 26 characters: "p" and 125
// bits in lower-case Crockford base32.
func ProcessID(tenant, thread, key string) string {
	h := sha256.New()
	for _, part := range []string{tenant, thread, key} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return "p" + idEncoding.EncodeToString(h.Sum(nil))[:25]
}
