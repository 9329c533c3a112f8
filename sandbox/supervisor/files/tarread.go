package files

import (
	"bytes"
	"io"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	block = 512
	// maxExtra is the most bytes of an entry that only describes the next one: a long name, or records of PAX.
	maxExtra = 64 << 10
)

// Types of entries of a tar stream.
const (
	typeFile     = '0'
	typeHardLink = '1'
	typeSymlink  = '2'
	typeChar     = '3'
	typeBlock    = '4'
	typeFolder   = '5'
	typeFifo     = '6'
	typePax      = 'x'
	typeGlobal   = 'g'
	typeLongName = 'L'
	typeLongLink = 'K'
)

// header is an entry of a tar stream.
type header struct {
	name, link string
	mode       os.FileMode
	size       int64
	changed    time.Time
	kind       byte
}

// tarReader reads the formats ustar, PAX and GNU, without sparse files.
type tarReader struct {
	from io.Reader
	left int64 // of the current entry, with its padding
	size int64 // of the current entry's content
}

func damaged(what string) error { return &failure{codeInvalid, "the tar stream is not valid: " + what} }

// next returns the next entry; io.EOF at the end.
func (t *tarReader) next() (*header, error) {
	var name, link string
	size := int64(-1)
	var changed time.Time
	for {
		if err := t.skip(); err != nil {
			return nil, err
		}
		h, err := t.header()
		if err != nil {
			return nil, err
		}
		switch h.kind {
		case typePax, typeLongName, typeLongLink, typeGlobal:
			extra, err := t.extra()
			if err != nil {
				return nil, err
			}
			switch h.kind {
			case typeLongName:
				name = cString(extra)
			case typeLongLink:
				link = cString(extra)
			case typePax:
				if err := paxRecords(extra, &name, &link, &size, &changed); err != nil {
					return nil, err
				}
			}
			continue
		}
		if name != "" {
			h.name = name
		}
		if link != "" {
			h.link = link
		}
		if !changed.IsZero() {
			h.changed = changed
		}
		if size >= 0 {
			h.size = size
		}
		if h.kind != typeFile && !leftOut(h.kind) { // what is left out has no content, and is skipped with it where a stream says it has
			h.size = 0
		}
		t.begin(h.size)
		return h, nil
	}
}

// leftOut reports whether entries of this type are not extracted: named pipes and devices.
func leftOut(kind byte) bool { return kind == typeFifo || kind == typeChar || kind == typeBlock }

func (t *tarReader) begin(size int64) { t.size, t.left = size, padded(size) }

func padded(n int64) int64 { return (n + block - 1) / block * block }

// skip reads over the rest of the current entry.
func (t *tarReader) skip() error {
	n, err := discard(t.from, t.left)
	if t.left -= n; err == io.EOF {
		err = damaged("it ends in an entry")
	}
	t.size = 0
	return err
}

// discard reads over this many bytes. io.Copy would make the program larger.
func discard(from io.Reader, most int64) (n int64, err error) {
	var buf [8 << 10]byte
	for n < most && err == nil {
		var got int
		got, err = from.Read(buf[:min(most-n, int64(len(buf)))])
		n += int64(got)
	}
	if n == most {
		err = nil
	}
	return n, err
}

// Read reads the content of the current entry.
func (t *tarReader) Read(b []byte) (int, error) {
	if t.size == 0 {
		return 0, io.EOF
	}
	n, err := t.from.Read(b[:min(int64(len(b)), t.size)])
	t.size, t.left = t.size-int64(n), t.left-int64(n)
	if err == io.EOF && t.size > 0 {
		err = damaged("it ends in an entry")
	}
	return n, err
}

// header reads the block of an entry, whose content begins.
func (t *tarReader) header() (*header, error) {
	var b [block]byte
	if n, err := io.ReadFull(t.from, b[:]); err != nil {
		if n > 0 {
			return nil, damaged("it ends in a header")
		}
		return nil, err
	}
	if b == [block]byte{} { // the end; what may follow is not part of the archive
		_, err := discard(t.from, math.MaxInt64)
		return nil, err
	}
	sum := int64(8 * ' ')
	for i, c := range b {
		if i < 148 || i >= 156 {
			sum += int64(c)
		}
	}
	want, ok := numeric(b[148:156])
	if !ok || sum != want {
		return nil, damaged("a header has a wrong checksum")
	}
	h := &header{name: cString(b[:100]), link: cString(b[157:257]), kind: b[156]}
	if bytes.Equal(b[257:263], []byte("ustar\x00")) {
		if prefix := cString(b[345:500]); prefix != "" {
			h.name = prefix + "/" + h.name
		}
	}
	mode, okMode := numeric(b[100:108])
	size, okSize := numeric(b[124:136])
	changed, okTime := numeric(b[136:148])
	if !okMode || !okSize || !okTime || size < 0 {
		return nil, damaged("a header has a wrong number")
	}
	h.mode, h.size, h.changed = os.FileMode(mode)&os.ModePerm, size, time.Unix(changed, 0)
	if h.kind == 0 {
		if h.kind = typeFile; strings.HasSuffix(h.name, "/") {
			h.kind = typeFolder
		}
	}
	t.begin(size)
	return h, nil
}

// extra reads an entry that describes the next one.
func (t *tarReader) extra() ([]byte, error) {
	if t.size > maxExtra {
		return nil, damaged("a name is too long")
	}
	b := make([]byte, t.size)
	if _, err := io.ReadFull(t, b); err != nil && t.size > 0 {
		return nil, damaged("it ends in an entry")
	}
	return b, nil
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// numeric reads a number: octal, or of 256 where the first bit is set.
func numeric(b []byte) (int64, bool) {
	if b[0]&0x80 != 0 {
		n := int64(b[0] & 0x3f)
		if b[0]&0x40 != 0 {
			n |= ^int64(0x3f)
		}
		for _, c := range b[1:] {
			if n > 1<<54 || n < -1<<54 {
				return 0, false
			}
			n = n<<8 | int64(c)
		}
		return n, true
	}
	text := strings.Trim(cString(b), " ")
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 8, 64)
	return n, err == nil
}

// paxRecords reads "length key=value\n" again and again.
func paxRecords(b []byte, name, link *string, size *int64, changed *time.Time) error {
	for len(b) > 0 {
		space := bytes.IndexByte(b, ' ')
		if space < 0 {
			return damaged("a PAX record has no length")
		}
		n, err := strconv.Atoi(string(b[:space]))
		if err != nil || n <= space+1 || n > len(b) || b[n-1] != '\n' {
			return damaged("a PAX record has a wrong length")
		}
		key, value, _ := strings.Cut(string(b[space+1:n-1]), "=")
		b = b[n:]
		switch key {
		case "path":
			*name = value
		case "linkpath":
			*link = value
		case "size":
			if *size, err = strconv.ParseInt(value, 10, 64); err != nil || *size < 0 || *size > math.MaxInt64-block {
				return damaged("a PAX record has a wrong size")
			}
		case "mtime":
			seconds, _, _ := strings.Cut(value, ".")
			if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
				*changed = time.Unix(n, 0)
			}
		}
	}
	return nil
}

// upload extracts a tar stream into a folder, which it makes. Nothing of it lands outside.
func (p *program) upload() error {
	name := path.Clean(p.args[0])
	if err := p.makeFolders(p.root, name, folderMode); err != nil {
		return err
	}
	to, err := openFolder(p.root, name)
	if err != nil {
		return err
	}
	t := &tarReader{from: p.in}
	for {
		h, err := t.next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = p.extract(to, t, h)
		}
		if err != nil {
			return err
		}
	}
}

// extract makes what one entry describes.
func (p *program) extract(to *os.Root, t *tarReader, h *header) error {
	name := path.Clean(strings.TrimLeft(h.name, "/"))
	if name == ".." || strings.HasPrefix(name, "../") || strings.IndexByte(name, 0) >= 0 {
		return fail(codeInvalid, h.name, "leads out of the folder")
	}
	if leftOut(h.kind) {
		return nil
	}
	if h.kind == typeFolder {
		if info, err := to.Lstat(name); err == nil && info.IsDir() {
			return nil
		}
		p.files++
		return p.makeFolders(to, name, h.mode|0o700)
	}
	dir, base, err := p.parent(to, name, true)
	if err != nil {
		return err
	}
	defer dir.Close()
	switch h.kind {
	case typeFile:
		return p.put(dir, base, name, t, func(os.FileMode) os.FileMode { return h.mode }, h.changed)
	case typeSymlink, typeHardLink:
		if err := p.admit(name); err != nil {
			return err
		}
		p.files++
		if info, err := dir.Lstat(base); err == nil && !info.IsDir() {
			if err := dir.Remove(base); err != nil {
				return err
			}
		}
		if h.kind == typeSymlink {
			return dir.Symlink(h.link, base)
		}
		return to.Link(path.Clean(strings.TrimLeft(h.link, "/")), name)
	default:
		return fail(codeInvalid, h.name, "is neither a file nor a folder nor a link")
	}
}
