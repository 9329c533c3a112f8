package worktree

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
)

// tempPrefix begins the names of temporary files and stages in the root. A sync never carries them, and the next one
// removes those that a crash left.
const tempPrefix = state.ReservedName + ".tmp-"

// Stage is the folder inside the root in which a pull prepares what it will publish. It is on the same file system, so
// publishing is renaming.
type Stage struct {
	root *os.Root
	name string
	next int
}

// NewStage makes an empty stage. The caller removes it.
func NewStage(root *os.Root) (*Stage, error) {
	s := &Stage{root: root, name: tempPrefix + state.RandomName()}
	if err := root.Mkdir(s.name, 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return s, nil
}

// NewPath returns an unused path in the stage, for what will be at a path of the folder.
func (s *Stage) NewPath(at string) string {
	s.next++
	sum := sha256.Sum256([]byte(at))
	return s.name + "/" + strconv.Itoa(s.next) + "-" + hex.EncodeToString(sum[:16])
}

// Leftovers are stages of interrupted pulls, from which the next one takes what it needs.
type Leftovers struct {
	root  *os.Root
	names []string
	files map[string]string // their paths, by what follows the number in a path of a stage
}

// Keep makes a stage a leftover. It gets another name, so that nothing takes its files for what they were staged for.
func (l *Leftovers) Keep(root *os.Root, name string) error {
	kept := tempPrefix + state.RandomName()
	l.root, l.names = root, append(l.names, kept)
	return root.Rename(name, kept)
}

// find lists the files of the leftovers.
func (l *Leftovers) find() {
	l.files = map[string]string{}
	for _, name := range l.names {
		l.findIn(name, len(name))
	}
}

// findIn lists the files of a folder of a leftover, of which the name has a length. What cannot be read is fetched.
func (l *Leftovers) findIn(dir string, name int) {
	// Something else may be in the folder's place by now: to open a FIFO would wait for its writer.
	f, err := l.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	entries, _ := f.ReadDir(-1)
	_ = f.Close() // it was only read
	for _, e := range entries {
		path := dir + "/" + e.Name()
		if _, id, ok := strings.Cut(path[name:], "-"); ok && e.Type().IsRegular() {
			l.files[id] = path
		} else if e.IsDir() {
			l.findIn(path, name)
		}
	}
}

// Take moves the leftover of a path in a new stage there, where one has the size of n. Its content may be any.
func (l *Leftovers) Take(path string, n *state.Node) bool {
	if len(l.names) == 0 {
		return false
	}
	if l.files == nil {
		l.find()
	}
	_, id, _ := strings.Cut(path[len(tempPrefix):], "-")
	from, ok := l.files[id]
	if !ok {
		return false
	}
	info, err := l.root.Lstat(from)
	if err != nil || !info.Mode().IsRegular() || info.Size() != n.Size {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink != 1 || l.root.Chmod(from, 0o600) != nil {
		return false // another name of it may be anywhere
	}
	return l.root.Rename(from, path) == nil
}

// Remove removes the leftovers.
func (l *Leftovers) Remove() error {
	for _, name := range l.names {
		if err := removal.All(l.root, name); err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: removing %s of an interrupted sync: %w", name, err)
		}
	}
	*l = Leftovers{}
	return nil
}

// Adopt gives a staged file that has n's content already n's mode and time.
func (w *Writer) Adopt(path string, n *state.Node) error {
	err := w.root.Chmod(path, fs.FileMode(n.Mode))
	if err == nil {
		err = w.setTime(path, n.ModTime())
	}
	return writeError(n.Path, err)
}

// Remove removes the stage with its content.
func (s *Stage) Remove() error {
	if err := removal.All(s.root, s.name); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return nil
}

// WithWritableParent changes something in path's folder. A folder that its owner may not write to is made writable for it.
func WithWritableParent(root *os.Root, path string, change func() error) error {
	err := change()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	dir := state.Parent(path)
	if dir == "" {
		return err
	}
	info, statErr := root.Lstat(dir)
	if statErr != nil || !info.IsDir() || root.Chmod(dir, info.Mode().Perm()|0o700) != nil {
		return err
	}
	return errors.Join(change(), root.Chmod(dir, info.Mode().Perm()))
}

// ReplaceFile writes one of Sluice's own files in the root, completely or not at all. With durable the content is on disk
// before the file has its name. skew is how far the file system's clock is ahead of this machine's, in nanoseconds: on a
// network file system it may be large.
func ReplaceFile(root *os.Root, name string, data []byte, durable bool) (skew int64, err error) {
	temp := tempPrefix + state.RandomName()
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	st, err := StatFile(f)
	if err == nil {
		skew = st.Mtime - time.Now().UnixNano()
		_, err = f.Write(data)
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return 0, writeError(name, errors.Join(err, root.Remove(temp)))
	}
	return skew, nil
}

// Writer writes files of the stage.
type Writer struct{ *Folders }

// NewWriter returns a writer for paths under root. The caller closes it.
func NewWriter(root *os.Root) *Writer { return &Writer{NewFolders(root)} }

func (w *Writer) create(path string, kept bool) (*os.File, error) {
	flags := os.O_RDWR | os.O_CREATE | os.O_EXCL
	if kept {
		flags = os.O_RDWR
	}
	fd, err := w.openFile(path, flags, 0o600)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// finish closes a file that was written up to err, with n's mode and time.
func (w *Writer) finish(f *os.File, path string, n *state.Node, err error) error {
	if err = errors.Join(err, f.Chmod(fs.FileMode(n.Mode)), f.Close()); err == nil {
		err = w.setTime(path, n.ModTime())
	}
	return writeError(n.Path, err)
}

// writeError returns the error for a file that could not be written: limit_exceeded when the disk is full, and nil for nil.
func writeError(path string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return schemas.Errorf(schemas.CodeLimitExceeded,
			"sync: no room for %q: free some disk space and sync again: %w", state.Clip(path), err).With("path", state.Clip(path))
	}
	return schemas.Errorf(schemas.CodeInternal, "sync: writing %q: %w", state.Clip(path), err)
}

// WriteFile makes a file from its verified content, with n's mode and time.
func (w *Writer) WriteFile(path string, n *state.Node, data []byte) error {
	f, err := w.create(path, false)
	if err != nil {
		return err
	}
	if n.Sparse {
		err = errors.Join(f.Truncate(n.Size), writeSparse(f, data, 0))
	} else {
		err = writePieces(f, data, 0)
	}
	if len(data) > SmallFile {
		startWriteback(f, 0, int64(len(data)))
	}
	return w.finish(f, path, n, err)
}

// writePieces writes data in pieces. For one large write Linux takes large folios, which a virtual machine has to get back from its
// host first: that took two to four times the processor time.
func writePieces(f *os.File, data []byte, offset int64) error {
	for len(data) > 0 {
		n, err := f.WriteAt(data[:min(len(data), pieceSize)], offset)
		if err != nil {
			return err
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}

// writeSparse leaves out the blocks that are all zeros. The file has its full size already.
func writeSparse(f *os.File, data []byte, offset int64) error {
	for len(data) > 0 {
		block := data[:min(sparseBlock, len(data))]
		if !allZero(block) {
			if _, err := f.WriteAt(block, offset); err != nil {
				return err
			}
		}
		offset += int64(len(block))
		data = data[len(block):]
	}
	return nil
}

func allZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[:len(b)-1], b[1:])
}

// LargeFile is a file of the stage that several downloads write to.
type LargeFile struct {
	node *state.Node
	path string
	f    *os.File
	left atomic.Int32 // chunks to come
	// mu serializes the writes and the start of their way to disk: the kernel would make them wait for the inode too, but spinning.
	mu sync.Mutex
}

// OpenLarge makes a file that gets its content in chunks, or opens one that is kept. The last Done completes it.
func (w *Writer) OpenLarge(path string, n *state.Node, chunks int, kept bool) (*LargeFile, error) {
	f, err := w.create(path, kept)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(n.Size); err != nil {
		return nil, errors.Join(schemas.Errorf(schemas.CodeLimitExceeded,
			"sync: no room for %q: free some disk space and sync again: %w", state.Clip(n.Path), err), f.Close())
	}
	l := &LargeFile{node: n, path: path, f: f}
	l.left.Store(int32(chunks))
	return l, nil
}

// Write writes verified content at an offset, and starts to bring it to disk: the sync at the end of the pull then has little to
// wait for.
func (l *LargeFile) Write(data []byte, offset int64) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node.Sparse {
		err = writeSparse(l.f, data, offset)
	} else {
		err = writePieces(l.f, data, offset)
	}
	if err == nil {
		startWriteback(l.f, offset, int64(len(data)))
	}
	return writeError(l.node.Path, err)
}

// ReadAt reads what a kept file has.
func (l *LargeFile) ReadAt(p []byte, at int64) (int, error) { return l.f.ReadAt(p, at) }

// Kept returns up to where a kept file has been written, if that was from its start on.
func (l *LargeFile) Kept() int64 {
	at, err := unix.Seek(int(l.f.Fd()), 0, seekHole)
	if err != nil {
		return 0
	}
	return at
}

// Done counts a chunk. The last one closes the file with the node's mode and time.
func (l *LargeFile) Done(w *Writer) (finished bool, err error) {
	if l.left.Add(-1) > 0 {
		return false, nil
	}
	return true, w.finish(l.f, l.path, l.node, nil)
}

// Abort closes a file that is not complete. It is removed with the stage.
func (l *LargeFile) Abort() {
	if l.left.Load() > 0 {
		_ = l.f.Close() // its content is not used
	}
}
