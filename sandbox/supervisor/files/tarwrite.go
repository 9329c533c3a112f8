package files

import (
	"io"
	"os"
	"path"
	"strconv"
)

// download prints a file, or a folder with its content, as a tar stream. Names begin with the last part of the path. It leaves out what
// is neither file nor folder nor symbolic link, and what cannot be opened below the path.
func (p *program) download() error {
	name := path.Clean(p.args[0])
	info, err := p.root.Stat(name)
	if err != nil {
		return err
	}
	base := path.Base(name)
	if info.IsDir() {
		if err := p.tarEntry(p.root, name, base, info); err != nil {
			return err
		}
		err = walk(p.root, name, maxPending, func(dir *os.Root, last, full string, info os.FileInfo) error {
			below := full
			if name != "." {
				below = base + full[len(name):]
			}
			return p.tarEntry(dir, last, below, info)
		})
	} else {
		f, info, openErr := open(p.root, name, os.O_RDONLY, 0)
		if openErr != nil {
			return openErr
		}
		err = p.tarFile(f, base, info)
	}
	if err != nil {
		return err
	}
	return p.print(make([]byte, 2*block))
}

// tarEntry prints one entry, with its content.
func (p *program) tarEntry(dir *os.Root, base, name string, info os.FileInfo) error {
	switch {
	case info.IsDir():
		p.files++
		return p.tarHeader(name+"/", "", info, typeFolder, 0)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := dir.Readlink(base)
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		p.files++
		return p.tarHeader(name, target, info, typeSymlink, 0)
	case !info.Mode().IsRegular():
		return nil
	}
	f, info, err := open(dir, base, os.O_RDONLY, 0)
	if err != nil {
		return nil //nolint:nilerr // not readable, or replaced meanwhile
	}
	return p.tarFile(f, name, info)
}

// tarFile prints a file of the size that it has now, and closes it.
func (p *program) tarFile(f *os.File, name string, info os.FileInfo) error {
	defer f.Close()
	size := info.Size()
	if err := p.tarHeader(name, "", info, typeFile, size); err != nil {
		return err
	}
	p.files++
	before := p.bytes
	if err := p.send(f, size); err != nil {
		return err
	}
	// It may have become shorter: the header has promised its size.
	zeros := make([]byte, 32<<10)
	for missing := padded(size) - (p.bytes - before); missing > 0; {
		n := min(missing, int64(len(zeros)))
		if err := p.print(zeros[:n]); err != nil {
			return err
		}
		missing -= n
	}
	return nil
}

// tarHeader prints the header of an entry, after one of PAX for what does not fit.
func (p *program) tarHeader(name, link string, info os.FileInfo, kind byte, size int64) error {
	var extra []byte
	if len(name) > 100 {
		extra = paxRecord(extra, "path", name)
	}
	if len(link) > 100 {
		extra = paxRecord(extra, "linkpath", link)
	}
	if size >= 1<<33 {
		extra = paxRecord(extra, "size", strconv.FormatInt(size, 10))
	}
	var b []byte
	if len(extra) > 0 {
		b = append(tarBlock("PaxHeader", "", fileMode, 0, typePax, int64(len(extra))), extra...)
		b = append(b, make([]byte, padded(int64(len(extra)))-int64(len(extra)))...)
	}
	return p.print(append(b, tarBlock(name, link, info.Mode().Perm(), max(0, info.ModTime().Unix()), kind, size)...))
}

// paxRecord appends "length key=value\n", where the length counts itself.
func paxRecord(b []byte, key, value string) []byte {
	rest := " " + key + "=" + value + "\n"
	n := len(rest)
	for n != len(rest)+len(strconv.Itoa(n)) {
		n = len(rest) + len(strconv.Itoa(n))
	}
	return append(append(b, strconv.Itoa(n)...), rest...)
}

func tarBlock(name, link string, mode os.FileMode, changed int64, kind byte, size int64) []byte {
	b := make([]byte, block)
	copy(b[:100], name)
	octal(b[100:108], int64(mode))
	octal(b[108:116], 0)
	octal(b[116:124], 0)
	octal(b[124:136], size&(1<<33-1))
	octal(b[136:148], changed&(1<<33-1))
	b[156] = kind
	copy(b[157:257], link)
	copy(b[257:265], "ustar\x0000")
	copy(b[148:156], "        ")
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	octal(b[148:156], sum)
	return b
}

// octal fills a field with digits and a zero byte.
func octal(field []byte, n int64) {
	for i := len(field) - 2; i >= 0; i-- {
		field[i] = '0' + byte(n&7)
		n >>= 3
	}
	field[len(field)-1] = 0
}

var _ io.Reader = (*tarReader)(nil)
