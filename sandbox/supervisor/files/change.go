package files

import (
	"io"
	"os"
	"path"
	"strconv"
	"syscall"
	"time"
)

// Modes of what an operation makes, when the caller sets none.
const (
	fileMode   = 0o644
	folderMode = 0o755
)

// mode is an argument in octal; otherwise the default.
func (p *program) mode(i int, otherwise os.FileMode) os.FileMode {
	if n, err := strconv.ParseUint(p.args[i], 8, 32); err == nil {
		return os.FileMode(n) & os.ModePerm
	}
	return otherwise
}

// parent opens the folder of a path, and makes it on request. It stays the same folder, whatever replaces its name meanwhile.
func (p *program) parent(root *os.Root, name string, create bool) (*os.Root, string, error) {
	dir, base := path.Split(path.Clean(name))
	if base == "." || base == ".." || base == "" {
		return nil, "", fail(codeInvalid, name, "names no file")
	}
	dir = path.Clean(dir)
	if create {
		if err := p.makeFolders(root, dir, folderMode); err != nil {
			return nil, "", err
		}
	}
	sub, err := openFolder(root, dir)
	return sub, base, err
}

// makeFolders makes the missing folders of a path, within the limits. A file that is in the way is one that exists: EEXIST.
func (p *program) makeFolders(root *os.Root, name string, mode os.FileMode) error {
	info, err := root.Stat(name)
	for i := 0; err != nil && i < len(name); i++ {
		if i+1 < len(name) && name[i+1] != '/' {
			continue
		}
		part := name[:i+1]
		if info, err := root.Stat(part); err == nil && !info.IsDir() {
			return &os.PathError{Op: "mkdir", Path: part, Err: syscall.EEXIST}
		}
		if _, err := root.Lstat(part); err == nil {
			continue
		}
		if err := p.admit(part); err != nil {
			return err
		}
		if err := root.Mkdir(part, mode); err != nil && errno(err) != syscall.EEXIST {
			return err
		}
	}
	if err != nil {
		info, err = root.Stat(name)
	}
	if err == nil && !info.IsDir() {
		return &os.PathError{Op: "mkdir", Path: name, Err: syscall.EEXIST}
	}
	return err
}

// admit takes the room for one more file.
func (p *program) admit(name string) error {
	if p.roomFiles >= 0 && p.made >= p.roomFiles {
		return fail(codeLimit, name, "the workspace has room for "+strconv.FormatInt(p.roomFiles, 10)+" more files")
	}
	p.made++
	return nil
}

// receive copies content into a file that has had bytes before, within the limits.
func (p *program) receive(to *os.File, from io.Reader, name string, before int64) error {
	buf := make([]byte, copyBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			before, p.bytes = before+int64(n), p.bytes+int64(n)
			if p.fileLimit >= 0 && before > p.fileLimit {
				return fail(codeTooLarge, name, "a file may have "+strconv.FormatInt(p.fileLimit, 10)+" bytes")
			}
			if p.roomBytes >= 0 && p.bytes > p.roomBytes {
				return fail(codeLimit, name, "the workspace has room for "+strconv.FormatInt(p.roomBytes, 10)+" more bytes")
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// put replaces a file as a whole: a reader sees the old content or the new one. It replaces a symbolic link, and follows none. Its errors
// name the file, not the temporary one.
func (p *program) put(dir *os.Root, base, name string, from io.Reader, mode func(old os.FileMode) os.FileMode, changed time.Time) error {
	err := p.replace(dir, base, name, from, mode, changed)
	if e := errno(err); e != 0 {
		return &os.PathError{Op: "write", Path: name, Err: e}
	}
	return err
}

func (p *program) replace(dir *os.Root, base, name string, from io.Reader, mode func(old os.FileMode) os.FileMode, changed time.Time) error {
	old := os.FileMode(fileMode)
	info, err := dir.Lstat(base)
	switch {
	case err != nil:
		if err := p.admit(name); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		old = info.Mode().Perm()
	case info.Mode()&os.ModeSymlink == 0:
		return fail(codeInvalid, name, "is a "+kindOf(info.Mode())+", not a file")
	}
	p.files++
	temp := ".sluice-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) + ".tmp"
	f, err := nameless(dir)
	unnamed := err == nil
	if !unnamed {
		f, err = dir.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return err
	}
	p.setTemp(func() { _ = dir.Remove(temp) })
	defer p.dropTemp()
	defer f.Close()
	if err := p.receive(f, from, name, 0); err != nil {
		return err
	}
	if err := f.Chmod(mode(old)); err != nil {
		return err
	}
	if unnamed {
		if err := link(f, dir, temp); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if !changed.IsZero() {
		_ = dir.Chtimes(temp, changed, changed) // the content counts, not its time
	}
	if err := dir.Rename(temp, base); err != nil {
		return err
	}
	p.setTemp(nil)
	return nil
}

func (p *program) write() error {
	name := p.args[0]
	dir, base, err := p.parent(p.root, name, p.args[2] == Yes)
	if err != nil {
		return err
	}
	keep := func(old os.FileMode) os.FileMode { return p.mode(1, old) }
	if err := p.put(dir, base, name, p.in, keep, time.Time{}); err != nil {
		return err
	}
	return p.print(entry(nil, dir, base, name, "", ""))
}

func (p *program) append() error {
	name := p.args[0]
	dir, base, err := p.parent(p.root, name, p.args[2] == Yes)
	if err != nil {
		return err
	}
	if _, err := dir.Lstat(base); err != nil {
		if err := p.admit(name); err != nil {
			return err
		}
	}
	p.files++
	f, info, err := open(dir, base, os.O_CREATE|os.O_WRONLY|os.O_APPEND, p.mode(1, fileMode))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.receive(f, p.in, name, info.Size()); err != nil {
		return err
	}
	return p.print(entry(nil, dir, base, name, "", ""))
}

func (p *program) mkdir() error {
	name, mode := path.Clean(p.args[0]), p.mode(1, folderMode)
	if p.args[2] == Yes {
		if err := p.makeFolders(p.root, name, mode); err != nil {
			return err
		}
	} else {
		if err := p.admit(name); err != nil {
			return err
		}
		if err := p.root.Mkdir(name, mode); err != nil {
			return err
		}
	}
	p.files++
	return p.print(entry(nil, p.root, name, name, "", ""))
}

func (p *program) remove() error {
	name := path.Clean(p.args[0])
	if name == "." {
		return fail(codeInvalid, name, "the workspace itself cannot be removed")
	}
	if _, err := p.root.Lstat(name); err != nil {
		return err
	}
	p.files = 1
	if p.args[1] == Yes {
		return p.root.RemoveAll(name)
	}
	return p.root.Remove(name)
}

func (p *program) move() error {
	from, to := path.Clean(p.args[0]), path.Clean(p.args[1])
	if from == "." || to == "." {
		return fail(codeInvalid, from, "the workspace itself cannot be moved or replaced")
	}
	if there, err := p.root.Lstat(to); err == nil {
		moved, err := p.root.Lstat(from)
		if there.IsDir() || err == nil && moved.IsDir() { // a file replaces a file
			return fail(codeConflict, to, "is a "+kindOf(there.Mode())+" that exists")
		}
	}
	if err := p.root.Rename(from, to); err != nil {
		return err
	}
	p.files = 1
	return p.print(entry(nil, p.root, to, to, "", ""))
}
