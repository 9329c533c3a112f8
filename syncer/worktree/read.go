package worktree

import (
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
)

// SmallFile is the size up to which a file is read and sent in one piece, together with others.
const SmallFile = 1 << 20

// sparseBlock is the size of the zero blocks that become holes when a sparse file is written.
const sparseBlock = 64 << 10

// steadyReads is how often a file that changes while it is read is read, before its last content is taken.
const steadyReads = 4

// pieceSize is how much of a file is read before it is hashed, and written at once: small enough for a processor's cache, and large
// enough for few system calls.
const pieceSize = 256 << 10

var errNotRegular = errors.New("no longer a regular file")

// IsGone reports whether an error means that a file was removed or replaced since it was listed.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, errNotRegular)
}

// UnreadableError is the error of a path that exists and cannot be read, which says nothing about other paths.
type UnreadableError struct{ error }

// Unwrap returns the file system's error.
func (e *UnreadableError) Unwrap() error { return e.error }

// readError returns err, as an [UnreadableError] where it concerns the one path that was read.
func readError(err error) error {
	for _, one := range []error{fs.ErrPermission, unix.EIO, unix.ENXIO, unix.ESTALE, unix.EBADMSG, unix.ELOOP} {
		if errors.Is(err, one) {
			return &UnreadableError{err}
		}
	}
	return err
}

// Open opens a regular file for reading, never through a symlink at its path, and stats what it opened. sparse reports
// whether it has holes.
func Open(root *os.Root, path string) (f *os.File, st Stat, sparse bool, err error) {
	if f, err = root.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err != nil {
		return nil, Stat{}, false, readError(err)
	}
	if st, sparse, err = statRegular(int(f.Fd()), path); err != nil {
		return nil, Stat{}, false, errors.Join(err, f.Close())
	}
	return f, st, sparse, nil
}

// statRegular stats an open file, which must be a regular one.
func statRegular(fd int, path string) (st Stat, sparse bool, err error) {
	var raw unix.Stat_t
	err = unix.Fstat(fd, &raw)
	if err == nil && raw.Mode&unix.S_IFMT != unix.S_IFREG {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return statOf(&raw), isSparse(&raw), err
}

// StatFile stats an open file.
func StatFile(f *os.File) (Stat, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return statOf(&st), err
}

// Content is what reading a file found.
type Content struct {
	Stat     Stat
	Sparse   bool
	MD5      state.Checksum
	Digest   state.Digest
	Unsteady bool // the file kept changing, and this is the last reading
	Open     bool // another process had it open for writing when the reading began
}

// Node returns n with what was read.
func (c *Content) Node(n *state.Node) state.Node {
	r := *n
	r.Size, r.Mode, r.Modified, r.Sparse = c.Stat.Size, c.Stat.Mode, c.Stat.Mtime, c.Sparse
	r.MD5, r.Digest, r.Hashed = c.MD5, c.Digest, true
	return r
}

// ChunkSink receives a file's content while it is read.
type ChunkSink interface {
	// Buffer returns a buffer of [state.ChunkSize] bytes. The reader fills it and passes it to Take or Release.
	Buffer() ([]byte, error)
	// Take receives chunk i of a file. The chunk belongs to the sink from then on.
	Take(i int, chunk []byte)
	Release(chunk []byte)
}

// ReadChunks reads a file and passes its chunks to sink. A file that changed meanwhile is read again, from chunk 0. The
// sink computes the digest, since it can do so elsewhere.
func ReadChunks(root *os.Root, path string, sink ChunkSink) (Content, error) {
	for try := 1; ; try++ {
		c, steady, err := readOnce(root, path, sink)
		if err != nil || steady {
			return c, err
		}
		if try == steadyReads {
			c.Unsteady = true
			return c, nil
		}
	}
}

func readOnce(root *os.Root, path string, sink ChunkSink) (c Content, steady bool, err error) {
	f, before, sparse, err := Open(root, path)
	if err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c.Open = openForWriting(int(f.Fd()))
	sum := md5.New()
	var size int64
	for i := 0; ; i++ {
		buf, err := sink.Buffer()
		if err != nil {
			return c, false, err
		}
		n, err := readHashed(f, buf, sum)
		if n == 0 {
			sink.Release(buf)
		} else {
			size += int64(n)
			sink.Take(i, buf[:n])
		}
		if err != nil && ignoreEOF(err) == nil {
			break
		}
		if err != nil {
			return c, false, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", state.Clip(path), readError(err))
		}
	}
	after, err := StatFile(f)
	c.Stat, c.Sparse, c.MD5 = before, sparse, state.Checksum(sum.Sum(nil))
	steady = after == before && size == before.Size
	c.Stat.Size = size
	return c, steady, err
}

// readHashed fills buf as [io.ReadFull] does, and hashes each piece while it is in the processor's cache.
func readHashed(f io.Reader, buf []byte, sum hash.Hash) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = io.ReadFull(f, buf[n:min(n+pieceSize, len(buf))])
		sum.Write(buf[n : n+k])
		n += k
	}
	return n, err
}

// ReadSmall reads a file that should fit scratch, and reports whether it did.
func ReadSmall(in *Folders, path string, scratch []byte) (data []byte, c Content, fits bool, err error) {
	for try := 1; ; try++ {
		n, c, steady, err := in.read(path, scratch)
		if err != nil || n == len(scratch) {
			return nil, c, false, err
		}
		if !steady && try < steadyReads {
			continue
		}
		data = scratch[:n]
		c.MD5, c.Digest, c.Unsteady, c.Stat.Size = md5.Sum(data), sha256.Sum256(data), !steady, int64(n)
		return data, c, true, nil
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// OpenTrusted opens one of Sluice's own files, of at most limit bytes, that only this user, or root, could write. Any other is refused with
// fs.ErrPermission, and a larger one with [schemas.CodeTooLarge]. size is its size in bytes.
func OpenTrusted(root *os.Root, path string, limit int64) (f *os.File, size int64, err error) {
	info, err := root.Lstat(path)
	if err != nil {
		return nil, 0, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() && st.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
		return nil, 0, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	return openOwn(root, path, limit)
}

func openOwn(root *os.Root, path string, limit int64) (f *os.File, size int64, err error) {
	f, st, _, err := Open(root, path)
	if err != nil {
		return nil, 0, err
	}
	if st.Size > limit {
		err = schemas.Errorf(schemas.CodeTooLarge, "%s: %d bytes, the limit is %d", path, st.Size, limit)
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size, nil
}

// ReadOwn reads one of Sluice's own files, of at most limit bytes.
func ReadOwn(root *os.Root, path string, limit int64) (data []byte, err error) {
	f, size, err := openOwn(root, path, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data = make([]byte, size)
	n, err := io.ReadFull(f, data)
	return data[:n], ignoreEOF(err)
}

// Hasher is a [ChunkSink] that only computes digests, in one buffer.
type Hasher struct {
	buf    []byte
	chunks []state.Digest
}

// Buffer implements [ChunkSink].
func (h *Hasher) Buffer() ([]byte, error) {
	if h.buf == nil {
		h.buf = make([]byte, state.ChunkSize)
	}
	return h.buf, nil
}

// Take implements [ChunkSink].
func (h *Hasher) Take(i int, chunk []byte) { h.chunks = append(h.chunks[:i], sha256.Sum256(chunk)) }

// Release implements [ChunkSink].
func (h *Hasher) Release([]byte) {}

// HashFile reads a file only to know its content. scratch has room for a small one.
func HashFile(in *Folders, path string, scratch []byte, large *Hasher) (Content, error) {
	_, c, fits, err := ReadSmall(in, path, scratch)
	if err != nil || fits {
		return c, err
	}
	large.chunks = large.chunks[:0]
	if c, err = ReadChunks(in.root, path, large); err == nil {
		c.Digest = state.FileDigest(large.chunks)
	}
	return c, err
}

// Stat is what the file system reports of a file. A file whose Stat changed is taken as changed.
type Stat struct {
	Size  int64
	Mtime int64 // nanoseconds since 1970
	Ctime int64
	Inode uint64
	Mode  uint16
}

func statOf(st *unix.Stat_t) Stat {
	return Stat{Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), Inode: st.Ino, Mode: uint16(st.Mode & 0o777)}
}

func isSparse(st *unix.Stat_t) bool { return st.Blocks*512 < st.Size && st.Size >= sparseBlock }

// TryLock locks a folder until Unlock, or the end of the process, between processes too. It fails with EWOULDBLOCK when the folder is
// locked. The lock is on the folder itself: it leaves no file behind.
func TryLock(dir *os.File) error {
	return unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Unlock ends the lock of TryLock. Closing dir alone would not: a child process that is being forked at this moment has a copy of it, which
// would hold the lock until the child's exec.
func Unlock(dir *os.File) error {
	return unix.Flock(int(dir.Fd()), unix.LOCK_UN)
}

// StatPath stats one path under root without following symlinks.
func StatPath(root *os.Root, path string) (st Stat, err error) {
	d := NewFolders(root)
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Stat(path)
}
