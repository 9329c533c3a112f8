package cryptstore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	secretSize = 32 // bytes
	keyPrefix  = "sluice-key-1:"
)

// Key encrypts a workspace. ParseKey makes one. It is safe for concurrent use.
type Key struct {
	secret  []byte // of which the keys of objects are derived
	id      [idSize]byte
	nameMAC []byte
	names   cipher.Block
}

// NewKey returns a new key as text, for [ParseKey].
func NewKey() string {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it never fails
	return keyPrefix + base64.RawURLEncoding.EncodeToString(secret)
}

// ParseKey reads a key that NewKey has made. Space around it is ignored. Errors: invalid_argument, without the text.
func ParseKey(text string) (*Key, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	secret, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || err != nil || len(secret) != secretSize {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: the text is not a key: `sluice sync keygen` makes one, which begins with %s", keyPrefix)
	}
	k := &Key{}
	var parts [4][]byte
	for i, purpose := range []string{"objects", "key id", "names mac", "names"} {
		if parts[i], err = hkdf.Key(sha256.New, secret, nil, "sluice sync "+purpose, secretSize); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
	}
	k.secret, k.nameMAC = parts[0], parts[2]
	copy(k.id[:], parts[1])
	if k.names, err = aes.NewCipher(parts[3]); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return k, nil
}

// object returns the cipher of one object.
func (k *Key) object(name string, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, k.secret, salt, "object "+name, secretSize)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "store: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "store: %w", err)
	}
	return cipher.NewGCM(block)
}

// sealName encrypts a name, always in the same way: its authentication code is the start of the counter (SIV).
func (k *Key) sealName(name string) string {
	iv := k.nameIV(name)
	sealed := append(iv, name...)
	cipher.NewCTR(k.names, iv).XORKeyStream(sealed[len(iv):], sealed[len(iv):])
	return hex.EncodeToString(sealed)
}

// openName is the reverse. ok is false for what sealName has not made.
func (k *Key) openName(sealed string) (name string, ok bool) {
	data, err := hex.DecodeString(sealed)
	if err != nil || len(data) < aes.BlockSize {
		return "", false
	}
	iv, text := data[:aes.BlockSize], data[aes.BlockSize:]
	cipher.NewCTR(k.names, iv).XORKeyStream(text, text)
	return string(text), hmac.Equal(iv, k.nameIV(string(text)))
}

func (k *Key) nameIV(name string) []byte {
	mac := hmac.New(sha256.New, k.nameMAC)
	mac.Write([]byte(name))
	return mac.Sum(nil)[:aes.BlockSize:aes.BlockSize]
}
