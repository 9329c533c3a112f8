package files

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"time"
)

const (
	// maxLine is how many bytes of a line a match shows.
	maxLine = 256
	// lineBuffer is the longest line that is searched as one, in bytes; a longer one is searched in pieces.
	lineBuffer = 64 << 10
	// binaryHead is how many bytes decide whether a file is text: one with a zero byte in them is not searched.
	binaryHead = 8 << 10
)

var errEnough = errors.New("enough matches")

// search prints the files and folders whose names match a pattern and, with a text, the lines of files that contain it.
func (p *program) search() error {
	name, pattern, text := p.args[0], p.args[1], p.args[2]
	most, err := p.number(3)
	if err != nil {
		return err
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return &failure{codeInvalid, pattern + ": not a pattern of names"}
	}
	found := func(b []byte) error {
		if err := p.print(b); err != nil || len(b) == 0 {
			return err
		}
		if p.files++; p.files == most {
			return errEnough
		}
		return nil
	}
	err = walk(p.root, name, maxPending, func(dir *os.Root, base, name string, info os.FileInfo) error {
		if ok, _ := path.Match(pattern, base); pattern != "" && !ok {
			return nil
		}
		if text == "" {
			return found(entry(nil, dir, base, name, "", ""))
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		return eachLine(dir, base, func(number int, line []byte) error {
			if !bytes.Contains(line, []byte(text)) {
				return nil
			}
			shown := string(bytes.TrimRight(line[:min(len(line), maxLine)], "\r\n"))
			return found(record(nil, name, "", info, strconv.Itoa(number), shown))
		})
	})
	if err == errEnough {
		return nil
	}
	return err
}

// eachLine calls visit with the lines of a text file. It leaves out a file that it cannot open.
func eachLine(dir *os.Root, base string, visit func(number int, line []byte) error) error {
	f, _, err := open(dir, base, os.O_RDONLY, 0)
	if err != nil {
		return nil // not readable, or replaced meanwhile
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, lineBuffer)
	if head, _ := r.Peek(binaryHead); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	for number := 1; ; {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if err := visit(number, line); err != nil {
				return err
			}
		}
		switch err {
		case nil:
			number++
		case bufio.ErrBufferFull:
		case io.EOF:
			return nil
		default:
			return nil
		}
	}
}

const (
	// watchEvery is the least time between two looks at a watched folder, and watchShare the part of the time that looks may take, as a
	// divisor.
	watchEvery = 200 * time.Millisecond
	watchShare = 10
	// maxWatched is the most files that are watched.
	maxWatched = 100_000
)

// The changes of a watch.
const (
	ChangeReady   = "ready" // the watch has begun
	ChangeCreated = "created"
	ChangeChanged = "changed"
	ChangeRemoved = "removed"
)

// seen is what a watch compares.
type seen struct {
	mode os.FileMode
	size int64
	time int64
	look int // the last look that found it
}

// watch prints what changes at or below a path, until it is killed. It looks at everything again and again: the notifications of a system
// miss what other hosts change, are limited in number, and differ.
func (p *program) watch() error {
	known, look := make(map[string]seen), 0
	for {
		look++
		began := time.Now()
		var b []byte
		note := func(dir *os.Root, base, name string, info os.FileInfo) error {
			now := seen{info.Mode(), info.Size(), info.ModTime().UnixNano(), look}
			if info.IsDir() {
				now.size, now.time = 0, 0 // its entries say it
			}
			before, ok := known[name]
			known[name] = now
			if len(known) > maxWatched {
				return fail(codeLimit, name, "more than "+strconv.Itoa(maxWatched)+" files cannot be watched")
			}
			before.look = look
			switch {
			case look == 1 || ok && before == now:
			case ok:
				b = entry(b, dir, base, name, ChangeChanged, "")
			default:
				b = entry(b, dir, base, name, ChangeCreated, "")
			}
			return nil
		}
		if err := p.look(note); err != nil && (look == 1 || codeOf(err) != codeNotFound) {
			return err
		}
		for name, s := range known {
			if s.look != look {
				delete(known, name)
				b = record(b, name, "", nil, ChangeRemoved, "")
			}
		}
		if look == 1 {
			b = record(b, p.args[0], "", nil, ChangeReady, "")
		}
		if len(b) > 0 {
			if err := p.print(b); err != nil {
				return err
			}
		}
		time.Sleep(max(watchEvery, watchShare*time.Since(began)))
	}
}

// look notes the watched file, or everything in the watched folder.
func (p *program) look(note func(dir *os.Root, base, name string, info os.FileInfo) error) error {
	name := p.args[0]
	info, err := p.root.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return walk(p.root, name, maxPending, note)
	}
	return note(p.root, name, name, info)
}
