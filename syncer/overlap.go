package syncer

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-dev/sluice/schemas"
)

// checkApart returns an error where the folder and the folder of the store are the same, or one is in the other: a sync would carry
// itself, and wait for its own lock.
func (s *Syncer) checkApart() error {
	if s.cfg.StoreDir == "" {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return schemas.Errorf(schemas.CodeInvalidArgument, "sync: "+format+": use a location that is apart from it", args...)
	}
	inStore, err := within(s.cfg.Root, s.cfg.StoreDir)
	if err != nil {
		return err
	}
	inFolder, err := within(s.cfg.StoreDir, s.cfg.Root)
	switch {
	case err != nil:
		return err
	case inStore && inFolder:
		return refuse("%s is both the folder and the store", s.cfg.Root)
	case inFolder:
		return refuse("the store %s is inside the folder %s", s.cfg.StoreDir, s.cfg.Root)
	case inStore:
		return refuse("the folder %s is inside the store %s", s.cfg.Root, s.cfg.StoreDir)
	}
	return nil
}

// within reports whether a folder is another one or below it, whatever symlinks and mounts their paths lead through.
func within(dir, top string) (bool, error) {
	want, err := os.Stat(top)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	var now fs.FileInfo
	for err == nil {
		if now, err = os.Stat(dir); err != nil || os.SameFile(now, want) {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false, nil
		}
		dir = up
	}
	if err != nil {
		return false, schemas.Errorf(schemas.CodeInvalidArgument, "sync: %w", err)
	}
	return true, nil
}
