package dirstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// Store keeps objects as files below a folder.
type Store struct{ root *os.Root }

var _ syncer.Store = (*Store)(nil)

// tempDir is where objects are while they are being written. No key may begin with it.
const tempDir = ".dirstore"

// Open makes the folder where it is missing, and opens it. The caller closes the store.
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

// Close gives the folder back.
func (s *Store) Close() error { return s.root.Close() }

// coded gives a file system's error the code that a store's must have.
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

// check refuses keys that are no plain relative path.
func check(key string) error {
	ok := key != "" && !strings.HasPrefix(key, "/") && strings.IndexByte(key, 0) < 0
	for seg := range strings.SplitSeq(key, "/") {
		if seg == "" || seg == "." || seg == ".." {
			ok = false
		}
	}
	if first, _, _ := strings.Cut(key, "/"); first == tempDir {
		ok = false
	}
	if !ok {
		return schemas.Errorf(schemas.CodeInvalidArgument, "folder store: %q cannot be a key", key)
	}
	return nil
}

// token is a file's identity. A Put makes a new file, so that the inode tells two versions apart that the clock does
// not.
func token(info fs.FileInfo) string {
	t := strconv.FormatInt(info.Size(), 36) + "-" + strconv.FormatInt(info.ModTime().UnixNano(), 36)
	if st, ok := inode(info); ok {
		t += "-" + strconv.FormatUint(st, 36)
	}
	return t
}

func describe(key string, info fs.FileInfo) syncer.Info {
	return syncer.Info{Key: key, Size: info.Size(), Token: token(info), Modified: info.ModTime()}
}

// Get implements [syncer.Store].
func (s *Store) Get(ctx context.Context, key string, r syncer.Range, dst []byte) (data []byte, info syncer.Info, err error) {
	if err := errors.Join(ctx.Err(), check(key)); err != nil {
		return nil, info, err
	}
	f, err := s.root.Open(key)
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

// Stat implements [syncer.Store].
func (s *Store) Stat(ctx context.Context, key string) (syncer.Info, error) {
	if err := errors.Join(ctx.Err(), check(key)); err != nil {
		return syncer.Info{}, err
	}
	st, err := s.root.Lstat(key)
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return syncer.Info{}, coded(err, key)
	}
	return describe(key, st), nil
}

// Put implements [syncer.Store]. An object with a condition is on disk when Put returns; one without is as soon as a
// later one with a condition is, since that one waits for everything written before it.
func (s *Store) Put(ctx context.Context, key string, c syncer.Content, cond syncer.Condition) (tok string, err error) {
	if err := errors.Join(ctx.Err(), check(key)); err != nil {
		return "", err
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails: see crypto/rand
	temp := path.Join(tempDir, hex.EncodeToString(random[:]))
	conditional := cond != syncer.Condition{}
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

func (s *Store) write(f *os.File, c syncer.Content, durable bool) (fs.FileInfo, error) {
	n, err := io.Copy(f, c.Open())
	if err == nil && n != c.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && durable {
		err = syncAll(f)
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

// removeEmpty removes a folder in which there is no object, only folders: a Put makes those before it puts the object
// there, and a Delete removes them after it, so that a process that is killed between the two leaves them behind. It
// says whether the folder is gone.
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

// swap renames under a lock that every conditional Put into this folder takes, in whatever process.
func (s *Store) swap(temp, key string, cond syncer.Condition) (err error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return coded(err, key)
	}
	defer func() { err = errors.Join(err, coded(dir.Close(), key)) }()
	if err := control(dir, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX) }); err != nil {
		return coded(err, key)
	}
	st, err := s.root.Lstat(key)
	switch there := err == nil && st.Mode().IsRegular(); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return coded(err, key)
	case cond.Absent && there:
		return schemas.Errorf(schemas.CodeConflict, "folder store: %q is there already", key)
	case cond.Match != "" && (!there || token(st) != cond.Match):
		return schemas.Errorf(schemas.CodeConflict, "folder store: %q was replaced", key)
	}
	if err := s.rename(temp, key); err != nil {
		return err
	}
	return coded(control(dir, unix.Fsync), key)
}

// List implements [syncer.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[syncer.Info, error] {
	return func(yield func(syncer.Info, error) bool) {
		top := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			top = prefix[:i]
		}
		if top != "" && check(top) != nil {
			return
		}
		var all []syncer.Info
		err := s.walk(ctx, top, func(i syncer.Info) {
			if strings.HasPrefix(i.Key, prefix) {
				all = append(all, i)
			}
		})
		if err != nil {
			yield(syncer.Info{}, err)
			return
		}
		slices.SortFunc(all, func(a, b syncer.Info) int { return cmp.Compare(a.Key, b.Key) })
		for _, i := range all {
			if !yield(i, nil) {
				return
			}
		}
	}
}

func (s *Store) walk(ctx context.Context, dir string, found func(syncer.Info)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name := dir
	if name == "" {
		name = "."
	}
	entries, err := fs.ReadDir(s.root.FS(), name)
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

// removeFolder removes a folder that is empty, and never an object in its place.
func (s *Store) removeFolder(name string) error {
	up, err := s.root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = control(up, func(fd int) error { return unix.Unlinkat(fd, path.Base(name), unix.AT_REMOVEDIR) })
	return errors.Join(err, up.Close())
}

// Delete implements [syncer.Store]. Folders that become empty go too.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := errors.Join(ctx.Err(), check(key)); err != nil {
			return err
		}
		switch err := s.root.Remove(key); {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EISDIR):
			continue // a folder of keys, and no object
		default:
			return coded(err, key)
		}
		for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
			// One that is gone already may have been removed by a process that was killed before it came to the next.
			if err := s.removeFolder(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				break // it holds something, or is an object by now
			}
		}
	}
	return nil
}
