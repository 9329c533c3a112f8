package bin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ErrNone is what [Extract] gives where no supervisor is embedded: the caller runs its own binary as one instead.
var ErrNone = errors.New("no supervisor is embedded for this system")

// mode lets the users that sandboxes run as execute it; the folder keeps everybody else away.
const mode = 0o755

// Extract makes sure that the supervisor is in dir as a program, and gives its path. A file that is there is used only when
// its bytes are the embedded ones; any number of workers may do this at the same time. The folder must be the user's own.
func Extract(dir string) (string, error) {
	if program == "" {
		return "", ErrNone
	}
	h := sha256.New()
	// Piece by piece: a conversion would copy the program whole.
	if _, err := io.Copy(h, struct{ io.Reader }{strings.NewReader(program)}); err != nil {
		return "", fmt.Errorf("extract the supervisor: %w", err)
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	path := filepath.Join(dir, "supervisor-"+hex.EncodeToString(sum[:8]))
	if same(path, sum) {
		return path, nil
	}
	f, err := os.CreateTemp(dir, "supervisor-*.tmp")
	if err != nil {
		return "", fmt.Errorf("extract the supervisor: %w", err)
	}
	err = write(f)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("extract the supervisor: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return path, nil
}

func write(f *os.File) error {
	_, err := f.WriteString(program)
	if err == nil {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}

func same(path string, sum [sha256.Size]byte) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != mode || info.Size() != int64(len(program)) {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false
	}
	return [sha256.Size]byte(h.Sum(nil)) == sum
}
