package client

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// CopyIn copies a file or a folder of this machine into the workspace, with the rules of `docker cp`: into a folder that exists, under its
// own name, or with /. at the end of local only its content; otherwise under the name that to gives. Links are copied as links, also local
// itself, unless it ends with / or /. ; what is neither file nor folder nor link is left out. It returns how many files and bytes it wrote.
func (f *Files) CopyIn(ctx context.Context, local, to string) (files, size int64, err error) {
	info, err := os.Lstat(local) // with a slash at the end it follows a link
	if err != nil {
		return 0, 0, localError(err)
	}
	there, err := f.Stat(ctx, to)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return 0, 0, err
	}
	isFolder, isLink := there != nil && there.Type == "folder", info.Mode()&fs.ModeSymlink != 0
	switch {
	case !info.IsDir() && !info.Mode().IsRegular() && !isLink: // reading it may never end
		return 0, 0, notAFile(local)
	case info.IsDir() && there != nil && !isFolder:
		return 0, 0, schemas.Errorf(schemas.CodeConflict, "%s is a %s: a folder cannot be copied onto it", to, there.Type)
	case !info.IsDir() && there == nil && strings.HasSuffix(to, "/"):
		return 0, 0, schemas.Errorf(schemas.CodeNotFound, "%s: no such folder", to)
	case isFolder && !(info.IsDir() && onlyContent(local)):
		full, err := filepath.Abs(local)
		if err != nil {
			return 0, 0, localError(err)
		}
		to = path.Join(to, filepath.Base(full))
	}
	if isLink {
		return f.copyLinkIn(ctx, local, to, info)
	}
	if !info.IsDir() {
		from, err := os.Open(local)
		if err != nil {
			return 0, 0, localError(err)
		}
		defer from.Close()
		e, err := f.Write(ctx, to, from, FileMode(info.Mode()))
		if err != nil {
			return 0, 0, err
		}
		return 1, e.Size, nil
	}
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		_ = w.CloseWithError(pack(w, local)) // always nil
	}()
	files, size, err = f.Upload(ctx, to, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // always nil; it ends pack
	<-packed
	return files, size, err
}

// copyLinkIn makes a link in the workspace that leads where a local one does.
func (f *Files) copyLinkIn(ctx context.Context, local, to string, info fs.FileInfo) (files, size int64, err error) {
	target, err := os.Readlink(local)
	if err != nil {
		return 0, 0, localError(err)
	}
	folder := path.Dir(path.Clean(to))
	if _, err := f.Stat(ctx, folder); err != nil { // Upload would make it, and Write does not
		return 0, 0, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := &tar.Header{Typeflag: tar.TypeSymlink, Name: path.Base(path.Clean(to)), Linkname: filepath.ToSlash(target), Mode: 0o777, ModTime: info.ModTime()}
	if err := errors.Join(w.WriteHeader(h), w.Close()); err != nil {
		return 0, 0, localError(err)
	}
	return f.Upload(ctx, folder, &b)
}

func notAFile(local string) error {
	return schemas.Errorf(schemas.CodeInvalidArgument, "%s is neither a file nor a folder", local)
}

// onlyContent reports whether a folder's content is meant, and not the folder.
func onlyContent(name string) bool {
	return name == "." || name == "" || strings.HasSuffix(name, "/.") || strings.HasSuffix(name, string(filepath.Separator)+".")
}

// DetailLocal is the detail of an error of [Files.CopyIn] and [Files.CopyOut] about a file of this machine, not one of the workspace.
const DetailLocal = "local"

// localError gives an error of this machine's files its code.
func localError(err error) error {
	return schemas.Errorf(localCode(err), "%w", err).With(DetailLocal, "yes")
}

// localErrorAt is localError with the path as the user knows it: that of err may be a temporary one, or begin in an open folder.
func localErrorAt(name string, err error) error {
	cause := err
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		cause = e.Err
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		cause = e.Err
	}
	return schemas.Errorf(localCode(err), "%s on this machine: %w", name, cause).With(DetailLocal, "yes")
}

func localCode(err error) schemas.Code {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return schemas.CodeNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return schemas.CodePermissionDenied
	case errors.Is(err, fs.ErrExist):
		return schemas.CodeConflict
	default:
		return schemas.CodeInvalidArgument
	}
}

// pack writes the content of a folder as a tar stream.
func pack(to io.Writer, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return localError(err)
	}
	defer root.Close()
	w := tar.NewWriter(to)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return packEntry(w, root, name, info)
	})
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		return nil
	}
	return localError(err)
}

func packEntry(w *tar.Writer, root *os.Root, name string, info fs.FileInfo) error {
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		var err error
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	h, err := tar.FileInfoHeader(info, filepath.ToSlash(link))
	if err != nil {
		return err
	}
	h.Name = name
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	from, err := root.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.CopyN(w, from, h.Size)
	return err
}

// CopyOut copies a file, a folder or a link of the workspace to this machine, with the rules of CopyIn. A link to which local leads is
// followed. What the sandbox answers is not trusted: nothing is written but under the name that from and local give.
func (f *Files) CopyOut(ctx context.Context, from, local string) (files, size int64, err error) {
	there, err := f.Stat(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	if there.Type == "symlink" && (onlyContent(from) || strings.HasSuffix(from, "/")) {
		for _, err := range f.List(ctx, from) { // an error when it leads to no folder
			if err != nil {
				return 0, 0, err
			}
			break
		}
		there.Type = "folder"
	}
	if target, err := filepath.EvalSymlinks(local); err == nil {
		local = target
	}
	info, err := os.Stat(local)
	isFolder := err == nil && info.IsDir()
	name := path.Base(path.Clean(from))
	switch {
	case there.Type != "folder" && isFolder:
		local = filepath.Join(local, name)
	case there.Type != "folder" && strings.HasSuffix(local, "/"):
		return 0, 0, schemas.Errorf(schemas.CodeNotFound, "%s: no such folder on this machine", local).With(DetailLocal, "yes")
	case there.Type == "folder" && err == nil && !isFolder:
		return 0, 0, schemas.Errorf(schemas.CodeConflict, "%s is a file: a folder cannot be copied onto it", local)
	case there.Type == "folder" && isFolder && !onlyContent(from):
		local = filepath.Join(local, name)
	}
	if there.Type == "symlink" {
		return saveLink(there.Target, local)
	}
	if there.Type != "folder" {
		r, err := f.Open(ctx, from, FilePart{})
		if err != nil {
			return 0, 0, err
		}
		defer r.Close()
		return f.saveFile(r, local, there.Mode)
	}
	r, err := f.Download(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	if err := os.MkdirAll(local, 0o755); err != nil {
		return 0, 0, localErrorAt(local, err)
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return 0, 0, localErrorAt(local, err)
	}
	defer root.Close()
	return unpack(root, r, path.Base(path.Clean(there.Path)))
}

func (f *Files) saveFile(r io.Reader, local, mode string) (files, size int64, err error) {
	root, err := os.OpenRoot(filepath.Dir(local) + string(filepath.Separator) + ".") // a named pipe does not block it
	if err != nil {
		return 0, 0, localErrorAt(filepath.Dir(local), err)
	}
	defer root.Close()
	size, err = save(root, filepath.Base(local), r, permissions(mode))
	return 1, size, err
}

// saveLink makes a link, in place of a file or a link.
func saveLink(target, local string) (files, size int64, err error) {
	root, err := os.OpenRoot(filepath.Dir(local) + string(filepath.Separator) + ".")
	if err != nil {
		return 0, 0, localErrorAt(filepath.Dir(local), err)
	}
	defer root.Close()
	name := filepath.Base(local)
	if err := replaceable(root, name); err != nil {
		return 0, 0, err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, localErrorAt(local, err)
	}
	return 1, 0, localOK(root, name, root.Symlink(filepath.FromSlash(target), name))
}

// unpack extracts a tar stream whose names begin with top, without that part; . is none.
func unpack(root *os.Root, r io.Reader, top string) (files, size int64, err error) {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, size, nil
		}
		if err != nil {
			return files, size, err
		}
		name := path.Clean(h.Name)
		if name == top {
			continue // the folder itself
		}
		if top != "." {
			name = strings.TrimPrefix(name, top+"/")
		}
		n, err := unpackEntry(root, t, h, filepath.FromSlash(name))
		if err != nil {
			return files, size, err
		}
		files, size = files+1, size+n
	}
}

func unpackEntry(root *os.Root, t *tar.Reader, h *tar.Header, name string) (int64, error) {
	if !filepath.IsLocal(name) {
		return 0, schemas.Errorf(schemas.CodeInvalidArgument, "the sandbox sent %q, which leads out of the folder", h.Name)
	}
	if h.Typeflag == tar.TypeDir {
		return 0, localOK(root, name, root.MkdirAll(name, 0o755))
	}
	if err := localOK(root, filepath.Dir(name), root.MkdirAll(filepath.Dir(name), 0o755)); err != nil {
		return 0, err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return save(root, name, t, fs.FileMode(h.Mode).Perm()) //nolint:gosec // only the permissions
	case tar.TypeSymlink:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, localOK(root, name, err)
		}
		return 0, localOK(root, name, root.Symlink(h.Linkname, name))
	default:
		return 0, nil
	}
}

// localOK is localErrorAt of a name in a folder; nil for no error.
func localOK(root *os.Root, name string, err error) error {
	if err == nil {
		return nil
	}
	return localErrorAt(filepath.Join(root.Name(), name), err)
}

// replaceable returns an error for what a copy must not replace: a folder, a device, a named pipe.
func replaceable(root *os.Root, name string) error {
	if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return schemas.Errorf(schemas.CodeConflict, "%s exists on this machine, and is not a file", filepath.Join(root.Name(), name)).With(DetailLocal, "yes")
	}
	return nil
}

// save puts a file in place as a whole. It replaces a link, and follows none.
func save(root *os.Root, name string, from io.Reader, mode fs.FileMode) (int64, error) {
	if err := replaceable(root, name); err != nil {
		return 0, err
	}
	temp := filepath.Join(filepath.Dir(name), ".sluice-"+strings.ToLower(ulid.Make().String())+".tmp") // any name in the workspace may be as long as the system allows
	to, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return 0, localOK(root, name, err)
	}
	n, err := io.Copy(to, from)
	if closed := to.Close(); err == nil && closed != nil {
		err = localOK(root, name, closed)
	}
	if err == nil {
		err = localOK(root, name, root.Rename(temp, name))
	}
	if err != nil {
		_ = root.Remove(temp) // the first error is returned
	}
	return n, err
}

// permissions reads those of an entry.
func permissions(mode string) fs.FileMode {
	perm := fs.FileMode(0)
	for _, c := range mode {
		perm = perm<<3 | fs.FileMode(c-'0')&7
	}
	return perm & fs.ModePerm
}
