package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/schemas"
)

// extractSupervisor writes the supervisor to dir as a program that every user may run, because the container's user is not the
// worker's. The mode of dir keeps other users of the host out.
func extractSupervisor(dir string) (string, error) {
	private, err := bin.Extract(dir)
	switch {
	case errors.Is(err, bin.ErrNotEmbedded):
		return "", schemas.Errorf(schemas.CodeUnavailable, "docker: %w: this provider needs Linux on amd64 or arm64", err)
	case err != nil:
		return "", schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	b, err := os.ReadFile(private)
	if err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	sum := sha256.Sum256(b)
	path := filepath.Join(dir, "container-"+hex.EncodeToString(sum[:8]))
	if present, err := os.ReadFile(path); err == nil && sha256.Sum256(present) == sum && executable(path) {
		return path, nil
	}
	if err := replace(path, b); err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "run folder: %w", err)
	}
	return path, nil
}

func executable(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode() == 0o555
}

// replace writes a file of mode 0555 atomically.
func replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "container-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o555)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
