package dirstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Store keeps objects as files below a folder.
type Store struct{ root *os.Root }

var _ objectstore.Store = (*Store)(nil)

// Open opens the folder, and makes it if it does not exist. The caller closes the store.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, coded(err, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, coded(err, dir)
	}
	s := &Store{root: root}
	if err := s.sweep(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// Close closes the folder.
func (s *Store) Close() error { return s.root.Close() }

// coded adds to a file system's error the code that a store's error must have.
func coded(err error, key string) error {
	if err == nil {
		return nil
	}
	code := schemas.CodeUnavailable
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR):
		code = schemas.CodeNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		code = schemas.CodePermissionDenied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = schemas.CodeLimitExceeded
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL):
		code = schemas.CodeInvalidArgument
	}
	return schemas.Errorf(code, "folder store: %q: %w", key, err)
}

// check refuses keys that are not a clean relative path.
func check(key string) error {
	first, _, _ := strings.Cut(key, "/")
	ok := first != tempDir && strings.IndexByte(key, 0) < 0
	for seg := range strings.SplitSeq(key, "/") {
		ok = ok && seg != "" && seg != "." && seg != ".."
	}
	if !ok {
		return schemas.Errorf(schemas.CodeInvalidArgument, "folder store: key %q is not a clean relative path", key)
	}
	return nil
}

// token identifies a file's version. A Put makes a new file, so the inode distinguishes two versions of the same time.
func token(info fs.FileInfo) string {
	return strconv.FormatInt(info.Size(), 36) + "-" + strconv.FormatInt(info.ModTime().UnixNano(), 36) + "-" +
		strconv.FormatUint(inode(info), 36)
}

func describe(key string, info fs.FileInfo) objectstore.Info {
	return objectstore.Info{Key: key, Size: info.Size(), Token: token(info), Modified: info.ModTime()}
}

// Get implements [objectstore.Store].
func (s *Store) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) (data []byte, info objectstore.Info, err error) {
	if err := errors.Join(ctx.Err(), check(key)); err != nil {
		return nil, info, err
	}
	f, err := s.root.OpenFile(key, os.O_RDONLY|unix.O_NONBLOCK, 0) // no object is a pipe, which would be waited for
	if err != nil {
		return nil, info, coded(err, key)
	}
	defer func() { err = errors.Join(err, coded(f.Close(), key)) }()
	st, err := f.Stat()
	if err != nil {
		return nil, info, coded(err, key)
	}
	if !st.Mode().IsRegular() {
		return nil, info, coded(fs.ErrNotExist, key)
	}
	info = describe(key, st)
	if r.Match != "" && r.Match != info.Token {
		return nil, info, schemas.Errorf(schemas.CodeConflict, "folder store: %q was replaced", key)
	}
	length := max(0, info.Size-r.Offset)
	if r.Length > 0 {
		length = min(length, r.Length)
	} else if r.Max > 0 && length > r.Max {
		return nil, info, schemas.Errorf(schemas.CodeTooLarge, "folder store: %q has %d bytes, the limit is %d", key, length, r.Max)
	}
	if int64(cap(dst)) < length {
		dst = make([]byte, length)
	}
	dst = dst[:length]
	n, err := f.ReadAt(dst, r.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, info, coded(err, key)
	}
	return dst[:n], info, nil
}

// Stat implements [objectstore.Store].
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	if err := errors.Join(ctx.Err(), check(key)); err != nil {
		return objectstore.Info{}, err
	}
	st, err := s.root.Lstat(key)
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return objectstore.Info{}, coded(err, key)
	}
	return describe(key, st), nil
}

// Put implements [objectstore.Store]. An object with a condition is durable when Put returns. One without is durable once a
// later Put with a condition returns, since that one syncs everything written before it.
func (s *Store) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (tok string, err error) {
	if err := errors.Join(ctx.Err(), check(key)); err != nil {
		return "", err
	}
	temp := path.Join(tempDir, rand.Text())
	conditional := cond != objectstore.Condition{}
	var st fs.FileInfo
	f, err := s.create(temp)
	if err == nil {
		defer func() { err = errors.Join(err, coded(f.Close(), temp)) }()
		st, err = s.write(f, c, conditional)
	}
	if err == nil {
		if conditional {
			err = s.swap(temp, key, cond)
		} else {
			err = s.rename(temp, key)
		}
	}
	if err != nil {
		if gone := s.root.Remove(temp); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return "", err
	}
	return token(st), nil
}

func (s *Store) write(f *os.File, c objectstore.Content, durable bool) (fs.FileInfo, error) {
	n, err := io.Copy(f, c.Open())
	if err == nil && n != c.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && durable {
		err = worktree.SyncFilesystem(f)
	}
	if err != nil {
		return nil, coded(err, f.Name())
	}
	st, err := f.Stat()
	return st, coded(err, f.Name())
}

func (s *Store) rename(temp, key string) error {
	err := s.root.Rename(temp, key)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.root.MkdirAll(path.Dir(key), 0o755); err != nil {
			return coded(err, key)
		}
		err = s.root.Rename(temp, key)
	}
	if err != nil && s.removeEmpty(key) {
		err = s.root.Rename(temp, key)
	}
	return coded(err, key)
}

// removeEmpty removes a folder that holds no object, only folders, and reports whether it did. A Put makes folders before
// the object, and a Delete removes them after it: a process killed in between leaves them behind.
func (s *Store) removeEmpty(name string) bool {
	entries, err := fs.ReadDir(s.root.FS(), name)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !e.IsDir() || !s.removeEmpty(path.Join(name, e.Name())) {
			return false
		}
	}
	return s.removeFolder(name) == nil
}

// swap renames under the lock that the conditional Puts of all processes into this folder take.
func (s *Store) swap(temp, key string, cond objectstore.Condition) (err error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return coded(err, key)
	}
	defer func() { err = errors.Join(err, coded(dir.Close(), key)) }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return coded(err, key)
	}
	st, err := s.root.Lstat(key)
	switch there := err == nil && st.Mode().IsRegular(); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return coded(err, key)
	case cond.Absent && there:
		return schemas.Errorf(schemas.CodeConflict, "folder store: %q exists already", key)
	case cond.Match != "" && (!there || token(st) != cond.Match):
		return schemas.Errorf(schemas.CodeConflict, "folder store: %q was replaced", key)
	}
	if err := s.rename(temp, key); err != nil {
		return err
	}
	return coded(dir.Sync(), key)
}

// List implements [objectstore.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		top := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			top = prefix[:i]
		}
		if top != "" && check(top) != nil {
			return
		}
		var all []objectstore.Info
		err := s.walk(ctx, top, func(i objectstore.Info) {
			if strings.HasPrefix(i.Key, prefix) {
				all = append(all, i)
			}
		})
		if err != nil {
			yield(objectstore.Info{}, err)
			return
		}
		slices.SortFunc(all, func(a, b objectstore.Info) int { return cmp.Compare(a.Key, b.Key) })
		for _, i := range all {
			if !yield(i, nil) {
				return
			}
		}
	}
}

func (s *Store) walk(ctx context.Context, dir string, found func(objectstore.Info)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := fs.ReadDir(s.root.FS(), cmp.Or(dir, "."))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return coded(err, dir)
	}
	for _, e := range entries {
		key := path.Join(dir, e.Name())
		if key == tempDir {
			continue
		}
		if e.IsDir() {
			if err := s.walk(ctx, key, found); err != nil {
				return err
			}
			continue
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !st.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return coded(err, key)
		}
		found(describe(key, st))
	}
	return nil
}

// removeFolder removes an empty folder, and never an object at its path.
func (s *Store) removeFolder(name string) error {
	up, err := s.root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = unix.Unlinkat(int(up.Fd()), path.Base(name), unix.AT_REMOVEDIR)
	return errors.Join(err, up.Close())
}

// Delete implements [objectstore.Store]. It also removes folders that become empty.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := errors.Join(ctx.Err(), check(key)); err != nil {
			return err
		}
		switch err := s.root.Remove(key); {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EISDIR):
			continue // a folder of keys, not an object
		default:
			return coded(err, key)
		}
		for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
			// A missing folder may have been removed by a process that was killed before it removed the next.
			if err := s.removeFolder(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				break // it is not empty, or is an object now
			}
		}
	}
	return nil
}

// AbortUpload implements [objectstore.Store]: this store has no uploads in parts.
func (*Store) AbortUpload(ctx context.Context, _ objectstore.Upload) error { return ctx.Err() }

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
