package dirstore

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// tempDir holds objects while they are being written. No key may begin with it.
const tempDir = ".dirstore"

// create makes a temporary file and locks it for as long as it is open. The lock ends with the process, which is how sweep
// distinguishes a file being written from one left behind.
func (s *Store) create(temp string) (*os.File, error) {
	for {
		f, err := s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.root.MkdirAll(tempDir, 0o755); err != nil {
				return nil, coded(err, tempDir)
			}
			f, err = s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		}
		if err != nil {
			return nil, coded(err, temp)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			// A sweep may have removed the file before it was locked.
			if _, err = s.root.Lstat(temp); err == nil {
				return f, nil
			}
		}
		if err = errors.Join(err, f.Close()); !errors.Is(err, fs.ErrNotExist) {
			return nil, coded(err, temp)
		}
	}
}

// sweep removes the temporary files of killed writers.
func (s *Store) sweep() error {
	entries, err := fs.ReadDir(s.root.FS(), tempDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return coded(err, tempDir)
	}
	for _, e := range entries {
		name := path.Join(tempDir, e.Name())
		f, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // renamed into place, or removed by another sweep
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = s.root.Remove(name)
		}
		if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return coded(err, name)
		}
	}
	return nil
}
