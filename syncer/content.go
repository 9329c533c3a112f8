package syncer

import (
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// sparseBlock is the size of the pieces that are left out, as holes, when a sparse file is written.
const sparseBlock = 64 << 10

// steadyReads is how often a file that changes while it is read is read again before it is taken as it was.
const steadyReads = 4

// openLocal opens a regular file for reading, wherever a symlink may have been put meanwhile, and stats what was
// opened.
func openLocal(root *os.Root, path string) (*os.File, stat, bool, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, stat{}, false, err
	}
	st, sparse, regular, err := statFile(f)
	if err == nil && !regular {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		return nil, stat{}, false, errors.Join(err, f.Close())
	}
	return f, st, sparse, nil
}

var errNotRegular = errors.New("no longer a regular file")

// missing says whether an error means that a file went away since it was listed.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) }

func statFile(f *os.File) (s stat, sparse, regular bool, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return stat{}, false, false, err
	}
	var st unix.Stat_t
	if failed := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); failed != nil {
		err = failed
	}
	s = stat{Size: st.Size, Inode: st.Ino, Mode: uint16(st.Mode & 0o777)}
	s.Mtime, s.Ctime = statTimes(&st)
	return s, st.Blocks*512 < st.Size && st.Size >= sparseBlock, st.Mode&unix.S_IFMT == unix.S_IFREG, err
}

// content is what reading a file has shown.
type content struct {
	stat     stat
	sparse   bool
	md5      Checksum
	digest   Digest
	unsteady bool // it went on changing, and is taken as it was the last time
}

// node is what n becomes by what was read.
func (c *content) node(n *Node) Node {
	r := *n
	r.Size, r.Mode, r.Modified, r.Sparse = c.stat.Size, c.stat.Mode, c.stat.Mtime, c.sparse
	r.MD5, r.Digest, r.Hashed = c.md5, c.digest, true
	return r
}

// seal computes the digest of a file from its chunks'.
func seal(chunks []Digest) Digest {
	if len(chunks) == 1 {
		return chunks[0]
	}
	h := sha256.New()
	for i := range chunks {
		h.Write(chunks[i][:])
	}
	return Digest(h.Sum(nil))
}

// chunkSink is given the content of a file as it is read.
type chunkSink interface {
	// room is a buffer of ChunkSize bytes that the caller fills and gives to take, or back to drop.
	room() ([]byte, error)
	// take is given chunk i of a file. The chunk is the sink's from then on.
	take(i int, chunk []byte) error
	drop(chunk []byte)
}

// readFile reads a file from its start to its end, again when it changed meanwhile, and gives its chunks to sink, from
// number 0 again with every new reading. Digests are the sink's business, since it can compute them elsewhere.
func readFile(root *os.Root, path string, sink chunkSink) (content, error) {
	for try := 1; ; try++ {
		c, steady, err := readOnce(root, path, sink)
		if err != nil || steady {
			return c, err
		}
		if try == steadyReads {
			c.unsteady = true
			return c, nil
		}
	}
}

func readOnce(root *os.Root, path string, sink chunkSink) (c content, steady bool, err error) {
	f, before, sparse, err := openLocal(root, path)
	if err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := md5.New()
	var size int64
	for i := 0; ; i++ {
		buf, err := sink.room()
		if err != nil {
			return c, false, err
		}
		n, err := readHashed(f, buf, sum)
		if n == 0 {
			sink.drop(buf)
		} else {
			size += int64(n)
			if err := sink.take(i, buf[:n]); err != nil {
				return c, false, err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return c, false, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", clip(path), err)
		}
	}
	after, _, _, err := statFile(f)
	c.stat, c.sparse, c.md5 = before, sparse, Checksum(sum.Sum(nil))
	steady = after == before && size == before.Size
	c.stat.Size = size
	return c, steady, err
}

// pieceSize is how much of a file is read before it is hashed: little enough for a processor's own cache, and enough
// to make few system calls.
const pieceSize = 256 << 10

// readHashed fills buf as [io.ReadFull] does, and gives sum each piece while it is still in the processor's cache.
func readHashed(f io.Reader, buf []byte, sum hash.Hash) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = io.ReadFull(f, buf[n:min(n+pieceSize, len(buf))])
		sum.Write(buf[n : n+k])
		n += k
	}
	return n, err
}

// readSmallFile reads a file that is expected to fit scratch, and says whether it did.
func readSmallFile(root *os.Root, path string, scratch []byte) (data []byte, c content, fits bool, err error) {
	for try := 1; ; try++ {
		f, before, sparse, err := openLocal(root, path)
		if err != nil {
			return nil, c, false, err
		}
		n, err := io.ReadFull(f, scratch)
		after, _, _, statErr := statFile(f)
		err = errors.Join(statErr, f.Close(), ignoreEnd(err))
		if err != nil {
			return nil, c, false, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", clip(path), err)
		}
		if n == len(scratch) {
			return nil, c, false, nil
		}
		steady := before == after && int64(n) == before.Size
		if !steady && try < steadyReads {
			continue
		}
		data = scratch[:n]
		c = content{stat: before, sparse: sparse, md5: md5.Sum(data), digest: sha256.Sum256(data), unsteady: !steady}
		c.stat.Size = int64(n)
		return data, c, true, nil
	}
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// readSmall reads one of Sluice's own files.
func readSmall(root *os.Root, path string, limit int64) (data []byte, err error) {
	f, st, _, err := openLocal(root, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = joined(errors.Join(err, f.Close())) }()
	if st.Size > limit {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "%s: over %d bytes", path, limit)
	}
	data = make([]byte, st.Size)
	n, err := io.ReadFull(f, data)
	return data[:n], ignoreEnd(err)
}

// hashing is a sink that only computes digests, in one buffer.
type hashing struct {
	buf    []byte
	chunks []Digest
}

func (h *hashing) room() ([]byte, error) {
	if h.buf == nil {
		h.buf = make([]byte, ChunkSize)
	}
	return h.buf, nil
}

func (h *hashing) drop([]byte) {}

func (h *hashing) take(i int, chunk []byte) error {
	h.chunks = append(h.chunks[:i], sha256.Sum256(chunk))
	return nil
}

// hashFile reads a file only to know what it holds. scratch has room for a small one.
func hashFile(root *os.Root, path string, scratch []byte, large *hashing) (content, error) {
	_, c, fits, err := readSmallFile(root, path, scratch)
	if err != nil || fits {
		return c, err
	}
	large.chunks = large.chunks[:0]
	c, err = readFile(root, path, large)
	if err == nil {
		c.digest = seal(large.chunks)
		if len(large.chunks) == 0 {
			c.digest = sha256.Sum256(nil)
		}
	}
	return c, err
}
