package files

import (
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	// batch is how many names of a folder are read at a time.
	batch = 1024
	// maxPending bounds the paths of folders that a walk has found and not visited, in bytes.
	maxPending = 32 << 20
)

// record appends the record of a file. change and text are the last two fields.
func record(b []byte, name, target string, info os.FileInfo, change, text string) []byte {
	kind, mode, size, changed := "", uint64(0), int64(0), int64(0)
	if info != nil {
		kind, mode, size, changed = kindOf(info.Mode()), uint64(info.Mode().Perm()), info.Size(), info.ModTime().UnixNano()
	}
	for _, field := range [RecordFields]string{name, kind, strconv.FormatUint(mode, 8), strconv.FormatInt(size, 10), strconv.FormatInt(changed, 10), target, change, text} {
		b = append(append(b, field...), 0)
	}
	return b
}

func kindOf(m os.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "folder"
	case m&os.ModeSymlink != 0:
		return "symlink"
	case m&os.ModeNamedPipe != 0:
		return "fifo"
	case m&os.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}

// entry appends the record of a file in a folder; nothing when it has just been removed.
func entry(b []byte, dir *os.Root, base, name, change, text string) []byte {
	info, err := dir.Lstat(base)
	if err != nil {
		return b
	}
	target := ""
	if info.Mode()&os.ModeSymlink != 0 {
		target, _ = dir.Readlink(base) // it has just been removed: then it has none
	}
	return record(b, name, target, info, change, text)
}

func (p *program) print(b []byte) error {
	_, err := p.out.Write(b)
	return err
}

func (p *program) stat() error {
	name := p.args[0]
	if _, err := p.root.Lstat(name); err != nil {
		return err
	}
	return p.print(entry(nil, p.root, name, name, "", ""))
}

// list prints the entries of a folder in the order of their names, from a name on. It holds twice as many names as it prints. The order
// is that of the names as the caller gets them, so that each page begins after the one before.
func (p *program) list() error {
	name, after := p.args[0], p.args[1]
	most, err := p.number(2)
	if err != nil {
		return err
	}
	dir, err := openFolder(p.root, name)
	if err != nil {
		return err
	}
	limit, names, last := int(most), []string(nil), ""
	err = eachName(dir, func(n string) error {
		if as := shown(n); as <= after || last != "" && as >= last {
			return nil
		}
		if names = append(names, n); len(names) >= 2*limit {
			slices.SortFunc(names, byShown)
			names = names[:limit]
			last = shown(names[limit-1])
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(names, byShown)
	var b []byte
	for _, n := range names[:min(len(names), limit)] {
		b = entry(b, dir, n, path.Join(name, n), "", "")
	}
	return p.print(b)
}

// shown is a name as the caller gets it.
func shown(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func byShown(a, b string) int { return strings.Compare(shown(a), shown(b)) }

// eachName calls visit with the names in a folder, in no order.
func eachName(dir *os.Root, visit func(string) error) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(batch)
		for _, n := range names {
			if err := visit(n); err != nil {
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

// walk calls visit with everything below a folder, each folder before its content. It follows no link, and leaves out what it cannot read
// and what is removed meanwhile. Errors: limit_exceeded when the paths of folders that it has still to visit have more than most bytes.
func walk(root *os.Root, name string, most int, visit func(dir *os.Root, base, name string, info os.FileInfo) error) error {
	held := 0
	for pending := []string{name}; len(pending) > 0; {
		folder := pending[len(pending)-1]
		pending, held = pending[:len(pending)-1], held-len(folder)
		dir, err := openFolder(root, folder)
		if err != nil {
			if folder == name {
				return err
			}
			continue
		}
		err = eachName(dir, func(base string) error {
			info, err := dir.Lstat(base)
			if err != nil {
				return nil //nolint:nilerr // removed meanwhile
			}
			below := path.Join(folder, base)
			if info.IsDir() {
				if held += len(below); held > most {
					return fail(codeLimit, folder, "too many folders: name one of them")
				}
				pending = append(pending, below)
			}
			return visit(dir, base, below, info)
		})
		_ = dir.Close()
		if err != nil && codeOf(err) != codeDenied && codeOf(err) != codeNotFound {
			return err
		}
	}
	return nil
}

// openFolder opens a folder. A named pipe in its place does not block it: the . at the end is looked up in a folder only.
func openFolder(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenRoot(name + "/.")
	if failed, ok := err.(*os.PathError); ok {
		failed.Path = name // without the .
	}
	return dir, err
}

// open opens a regular file. A named pipe does not block it.
func open(dir *os.Root, name string, flag int, mode os.FileMode) (*os.File, os.FileInfo, error) {
	f, err := dir.OpenFile(name, flag|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fail(codeInvalid, name, "is a "+kindOf(info.Mode())+", not a file")
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// read prints the content of a file.
func (p *program) read() error {
	offset, err := p.number(1)
	if err != nil {
		return err
	}
	most, err := p.number(2)
	if err != nil {
		return err
	}
	f, _, err := open(p.root, p.args[0], os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	p.files = 1
	return p.send(f, most)
}

// send prints at most this many bytes of a reader, all for -1.
func (p *program) send(from io.Reader, most int64) error {
	buf := make([]byte, copyBuffer)
	for most != 0 {
		b := buf
		if most > 0 && most < copyBuffer {
			b = buf[:most]
		}
		n, err := from.Read(b)
		if n > 0 {
			if err := p.print(b[:n]); err != nil {
				return err
			}
			p.bytes += int64(n)
			if most > 0 {
				most -= int64(n)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
