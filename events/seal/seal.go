package seal

import (
	"bufio"
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// MaxKeys is the most keys in a file: what waits in NATS is a day old by default, so a few are enough for any rotation.
	MaxKeys = 64
	// keyPrefix begins the line of a key in a file, and names the suite.
	keyPrefix = "sluice-seal-1:"
	// none, as the first line of a file, ends the sealing.
	none = "none"
	// purpose separates these messages from others that a key may be used for one day.
	purpose = "sluice command 1\x00"
)

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// Keys are the keys of a worker. The first one is that of its cell; the others open what was sealed before it. The zero value has none.
type Keys struct {
	all []hpke.PrivateKey
	off bool // the file begins with none
}

// NewKey returns a line of a file of keys, with a new key.
func NewKey() (string, error) {
	k, err := kem().GenerateKey()
	if err != nil {
		return "", schemas.Errorf(schemas.CodeInternal, "make a key: %w", err)
	}
	secret, err := k.Bytes()
	if err != nil {
		return "", schemas.Errorf(schemas.CodeInternal, "encode a key: %w", err)
	}
	return keyPrefix + base64.RawURLEncoding.EncodeToString(secret), nil
}

// ParseKeys decodes a file of keys: one a line, the cell's first. Empty lines and those that begin with # are skipped. A first line "none" ends
// the sealing of new commands, and the keys below open the old ones. Errors: invalid_argument, which repeats nothing of the file.
func ParseKeys(file []byte) (*Keys, error) {
	k, lines := new(Keys), bufio.NewScanner(bytes.NewReader(file))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case line == none && !k.off && len(k.all) == 0:
			k.off = true
			continue
		case len(k.all) == MaxKeys:
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the file has more than %d keys: remove the oldest", MaxKeys)
		}
		encoded, ok := strings.CutPrefix(line, keyPrefix)
		secret, err := base64.RawURLEncoding.DecodeString(encoded)
		if !ok || err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "line %d is no key: `sluice keygen` makes one, which begins with %s", n, keyPrefix)
		}
		key, err := kem().NewPrivateKey(secret)
		if err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "line %d is no key of X25519, which has 32 bytes", n)
		}
		k.all = append(k.all, key)
	}
	if lines.Err() != nil || (len(k.all) == 0 && !k.off) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the file has no key: `sluice keygen` makes one")
	}
	return k, nil
}

// Public is what callers seal with; nil when these keys end the sealing.
func (k *Keys) Public() *schemas.SealKey {
	if k == nil || k.off {
		return nil
	}
	return public(k.all[0].PublicKey())
}

func public(k hpke.PublicKey) *schemas.SealKey {
	b := k.Bytes()
	sum := sha256.Sum256(b)
	return &schemas.SealKey{ID: hex.EncodeToString(sum[:8]), Public: b}
}

// Has reports whether one of the keys has this id.
func (k *Keys) Has(id string) bool { return k.find(id) >= 0 }

func (k *Keys) find(id string) int {
	if k == nil {
		return -1
	}
	return slices.IndexFunc(k.all, func(p hpke.PrivateKey) bool { return public(p.PublicKey()).ID == id })
}

// Open decrypts what Seal has made with the key of this id, for the same place. Errors: not_found without such a key, damaged.
func (k *Keys) Open(id, place string, sealed []byte) ([]byte, error) {
	i := k.find(id)
	if i < 0 {
		return nil, schemas.Errorf(schemas.CodeNotFound, "the command is sealed with key %.40q, which this worker does not have: add it to the file of --seal-keys", id)
	}
	body, err := hpke.Open(k.all[i], hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(purpose+place), sealed)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeDamaged, "the command is not what was sealed with key %s for %s", id, place)
	}
	return body, nil
}

// Seal encrypts a command for its place, which it can be opened for alone: cell, tenant, thread and operation. The result is 48 bytes longer: the
// encapsulated key and then the ciphertext. Errors: invalid_argument for a key that is none.
func Seal(key *schemas.SealKey, place string, body []byte) ([]byte, error) {
	to, err := kem().NewPublicKey(key.Public)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the cell's key %.40q is no public key of X25519: %w", key.ID, err)
	}
	sealed, err := hpke.Seal(to, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(purpose+place), body)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "seal with the cell's key %.40q: %w", key.ID, err)
	}
	return sealed, nil
}
