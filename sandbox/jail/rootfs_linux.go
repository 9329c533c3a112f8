package jail

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/sluice-dev/sluice/schemas"
)

// The limits of a tar that is a root file system: more than any distribution's image needs, and too little to fill a disk.
const (
	maxRootfsEntries = 1_000_000
	maxRootfsBytes   = 16 << 30
)

// rootfsCache unpacks tars of root file systems, each once.
type rootfsCache struct {
	dir  string
	lock chan struct{} // held while one unpacks; a channel, so that waiting ends with its context
}

// folder returns the folder of a root file system that is a folder or a tar, plain or gzipped. Errors: invalid_argument.
func (c *rootfsCache) folder(ctx context.Context, name string) (string, error) {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return name, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("neither a folder nor a tar")
	}
	dir := ""
	if err == nil {
		dir, err = c.unpacked(ctx, name)
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "rootfs: %s: %w", name, err).With("path", "rootfs")
	}
	return dir, nil
}

// unpacked returns the folder with a tar's content, named by the tar's hash, and unpacks the tar when the folder is missing.
func (c *rootfsCache) unpacked(ctx context.Context, name string) (string, error) {
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.lock }()
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &contextReader{ctx, f}); err != nil {
		return "", err
	}
	dir := filepath.Join(c.dir, hex.EncodeToString(sum.Sum(nil)))
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		return dir, nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return "", err
	}
	return dir, createFolder(dir, func(tmp string) error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		unpacked := sha256.New()
		err := unpack(io.TeeReader(&contextReader{ctx, f}, unpacked), tmp)
		if err == nil && !bytes.Equal(unpacked.Sum(nil), sum.Sum(nil)) {
			err = errors.New("the file changed during the read")
		}
		return err
	})
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}

// unpack writes a tar's content into a folder, and reads the tar to its last byte. It writes nothing outside the folder, whatever the
// names and links in the tar are. It skips devices and sockets, and drops owners and set-id bits.
func unpack(r io.Reader, dir string) error {
	raw := bufio.NewReader(r)
	in := io.Reader(raw)
	if magic, err := raw.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(raw)
		if err != nil {
			return err
		}
		in = unzipped
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	u := &unpacker{root: root, bytesLeft: maxRootfsBytes}
	err = errors.Join(u.unpack(tar.NewReader(in)), root.Close())
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, raw) // the hash covers what follows the tar's end, too
	return err
}

type unpacker struct {
	root      *os.Root
	bytesLeft int64
}

func (u *unpacker) unpack(in *tar.Reader) error {
	for n := 0; ; n++ {
		h, err := in.Next()
		if err == io.EOF && n > 0 {
			return nil
		}
		if err == io.EOF {
			return errors.New("the tar is empty")
		}
		if err != nil {
			return fmt.Errorf("not a tar: %w", err)
		}
		if n >= maxRootfsEntries {
			return fmt.Errorf("more than %d entries", maxRootfsEntries)
		}
		if err := u.entry(h, in); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// entry writes one entry. It replaces an earlier one of the same name.
func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	name := path.Clean(h.Name)
	if path.IsAbs(name) {
		name = name[1:] // as tar(1) does
	}
	if name == "." || name == "" {
		return nil
	}
	if !filepath.IsLocal(name) {
		return errors.New("the name leads out of the root")
	}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.mkdirAll(name); err != nil {
			return err
		}
		return u.root.Chmod(name, mode|0o700) // the worker must be able to write later entries into it
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink:
	default:
		return nil // devices, sockets, and extensions of other tools
	}
	if err := u.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return u.root.Symlink(h.Linkname, name) // a process resolves it inside the jail's root
	case tar.TypeLink:
		return u.root.Link(path.Clean("./"+h.Linkname), name)
	}
	return u.writeFile(name, mode, h.Size, in)
}

// mkdirAll creates a folder and its missing parents, whatever the umask is.
func (u *unpacker) mkdirAll(name string) error {
	if info, err := u.root.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if err := u.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return u.root.Chmod(name, 0o755)
}

// writeFile writes a file, whatever the umask is.
func (u *unpacker) writeFile(name string, mode fs.FileMode, size int64, in io.Reader) error {
	if u.bytesLeft -= size; u.bytesLeft < 0 {
		return fmt.Errorf("the root file system has more than %d bytes", int64(maxRootfsBytes))
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	if err == nil {
		err = f.Chmod(mode | 0o400)
	}
	return errors.Join(err, f.Close())
}
