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

// What a root given as tar may hold: more than any image of a distribution, and too little to fill a disk.
const (
	maxRootEntries = 1_000_000
	maxRootBytes   = 16 << 30
)

// rootfs is the folder of a root that was given as a folder or as a tar, plain or gzipped. A tar is unpacked once, below the run
// folder, under the name of its content. Errors: invalid_argument.
func (p *Provider) rootfs(ctx context.Context, name string) (string, error) {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return name, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("neither a folder nor a tar")
	}
	dir := ""
	if err == nil {
		dir, err = p.unpacked(ctx, name)
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "rootfs: %s: %w", name, err).With("path", "rootfs")
	}
	return dir, nil
}

// unpacked gives the folder of a tar's content, which it makes where it is missing.
func (p *Provider) unpacked(ctx context.Context, name string) (_ string, err error) {
	// One at a time: whoever waits for the same one finds it there.
	select {
	case p.unpacking <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-p.unpacking }()
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &patient{ctx, f}); err != nil {
		return "", err
	}
	all := filepath.Join(p.dir, "rootfs")
	dir := filepath.Join(all, hex.EncodeToString(sum.Sum(nil)))
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		return dir, nil
	}
	if err := os.MkdirAll(all, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(all, "*.tmp")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	again := sha256.New()
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		err = unpack(io.TeeReader(&patient{ctx, f}, again), tmp)
	}
	if err == nil && !bytes.Equal(again.Sum(nil), sum.Sum(nil)) {
		err = errors.New("it changed while it was read")
	}
	if err == nil {
		err = os.Chmod(tmp, 0o755)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	return dir, err
}

// patient reads until its context ends.
type patient struct {
	ctx context.Context
	r   io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// unpack puts a tar's content into a folder, and reads it to its last byte. Nothing is made outside of the folder, whatever the names
// and links in the tar say; devices and sockets are left out, owners are not taken over, and set-id bits neither.
func unpack(r io.Reader, dir string) error {
	whole := bufio.NewReader(r)
	in := io.Reader(whole)
	if magic, err := whole.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(whole)
		if err != nil {
			return err
		}
		in = unzipped
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	u := &unpacker{root: root, left: maxRootBytes}
	err = errors.Join(u.all(tar.NewReader(in)), root.Close())
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, whole) // what follows the end belongs to its name too
	return err
}

type unpacker struct {
	root *os.Root
	left int64 // bytes it may hold still
}

func (u *unpacker) all(in *tar.Reader) error {
	for n := 0; ; n++ {
		h, err := in.Next()
		if err == io.EOF && n > 0 {
			return nil
		}
		if err == io.EOF {
			return errors.New("it is empty")
		}
		if err != nil {
			return fmt.Errorf("not a tar: %w", err)
		}
		if n >= maxRootEntries {
			return fmt.Errorf("more than %d entries", maxRootEntries)
		}
		if err := u.one(h, in); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// one makes one entry. A later one of the same name takes its place.
func (u *unpacker) one(h *tar.Header, in io.Reader) error {
	name := path.Clean(h.Name)
	if path.IsAbs(name) {
		name = name[1:] // as tar itself does
	}
	if name == "." || name == "" {
		return nil
	}
	if !filepath.IsLocal(name) {
		return errors.New("it leads out of the root")
	}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.folder(name); err != nil {
			return err
		}
		return u.root.Chmod(name, mode|0o700) // the worker must be able to go on in it
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink:
	default:
		return nil // devices, sockets, and what other tools add
	}
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return u.root.Symlink(h.Linkname, name) // inside, it is followed as the jail's root sees it
	case tar.TypeLink:
		return u.root.Link(path.Clean("./"+h.Linkname), name)
	}
	return u.file(name, mode, h.Size, in)
}

// folder makes a folder, and those above it, where there are none.
func (u *unpacker) folder(name string) error {
	if info, err := u.root.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return u.root.Chmod(name, 0o755) // whatever the umask is
}

func (u *unpacker) file(name string, mode fs.FileMode, size int64, in io.Reader) error {
	if u.left -= size; u.left < 0 {
		return fmt.Errorf("the root would hold more than %d bytes", int64(maxRootBytes))
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	if err == nil {
		err = f.Chmod(mode | 0o400) // whatever the umask is
	}
	return errors.Join(err, f.Close())
}
