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

// ErrNotEmbedded is the error of [Extract] when no supervisor is embedded. The caller then runs its own binary as the supervisor.
var ErrNotEmbedded = errors.New("no supervisor is embedded for this system")

// mode lets the users of sandboxes execute the file; the folder keeps other users out.
const mode = 0o755

// Extract writes the supervisor's program to dir, unless it exists there, and returns its path. It reuses a file only when its bytes
// are the embedded ones. Several workers may call it at the same time. The user must own the folder.
func Extract(dir string) (string, error) {
	if program == "" {
		return "", ErrNotEmbedded
	}
	h := sha256.New()
	// A conversion to []byte would copy the whole program.
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
	if err = write(f); err == nil {
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
