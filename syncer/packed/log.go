package packed

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Log is a file in the folder that has a line for each object that a push has stored. It is removed at the end of the push. The push after
// an interrupted one finds in it what need not be sent again.
type Log struct {
	root *os.Root
	name string
	// Push is the name of the interrupted push and of the one that goes on with it: see [state.Object].Push.
	Push string
	// Entries are what the interrupted push has stored.
	Entries []Logged

	file *os.File // nil until the first line is written
}

// Logged is an object that a push has stored, and the files in it if it is a pack.
type Logged struct {
	SHA256     string         `json:"sha256"`
	Size       int64          `json:"size"`
	Generation uint64         `json:"generation"`
	Push       string         `json:"push,omitempty"`
	Files      []loggedMember `json:"files,omitempty"`
}

type loggedMember struct {
	SHA256 string `json:"sha256"`
	Offset int64  `json:"offset"`
}

// logHead is the first line. The inodes are those of the folder and of the log: a copy of the folder is not the folder, and what
// another push may remove must not be relied on.
type logHead struct {
	Push   string `json:"push"`
	Folder uint64 `json:"folder"`
	File   uint64 `json:"file"`
}

// The most that is read of a log and of a line of it, in bytes.
const (
	maxLog     = 256 << 20
	maxLogLine = 16 << 20
)

// OpenLog reads the log that an interrupted push has left. push names this push where there is none.
func OpenLog(root *os.Root, name, push string) (*Log, error) {
	l := &Log{root: root, name: name, Push: push}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	lines := bufio.NewScanner(io.LimitReader(f, maxLog))
	lines.Buffer(nil, maxLogLine)
	here, err := l.head(f)
	if err != nil {
		return nil, err
	}
	var head logHead
	ok := lines.Scan() && unmarshalLine(lines.Text(), &head)
	if !ok || head.Folder != here.Folder || head.File != here.File || !state.IsRandomName(head.Push) {
		return l, nil
	}
	l.Push = head.Push
	for lines.Scan() {
		var e Logged
		if !unmarshalLine(lines.Text(), &e) {
			break // torn
		}
		l.Entries = append(l.Entries, e)
	}
	return l, nil
}

func (l *Log) head(f *os.File) (h logHead, err error) {
	var folder, file unix.Stat_t
	dir, err := l.root.Open(".")
	if err == nil {
		err = errors.Join(unix.Fstat(int(dir.Fd()), &folder), unix.Fstat(int(f.Fd()), &file), dir.Close())
	}
	if err != nil {
		return h, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return logHead{Push: l.Push, Folder: folder.Ino, File: file.Ino}, nil
}

// add writes a line. The caller serializes the calls.
func (l *Log) add(o *state.Object, members []member) error {
	if l.file == nil {
		if err := l.create(); err != nil {
			return err
		}
	}
	e := Logged{SHA256: hex.EncodeToString(o.Digest[:]), Size: o.Size, Generation: o.Generation, Push: o.Push}
	for _, m := range members {
		e.Files = append(e.Files, loggedMember{hex.EncodeToString(m.digest[:]), m.offset})
	}
	return l.write(e)
}

// create begins a log, with what an interrupted push has left.
func (l *Log) create() (err error) {
	if err := l.Remove(); err != nil {
		return err
	}
	if l.file, err = l.root.OpenFile(l.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	head, err := l.head(l.file)
	if err == nil {
		err = l.write(head)
	}
	for i := 0; i < len(l.Entries) && err == nil; i++ {
		err = l.write(l.Entries[i])
	}
	return err
}

func (l *Log) write(line any) error {
	data, err := json.Marshal(line)
	if err == nil {
		_, err = fmt.Fprintf(l.file, "%08x %s\n", crc32.ChecksumIEEE(data), data)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: writing %s: %w", l.name, err)
	}
	return nil
}

func unmarshalLine(line string, into any) bool {
	sum, data, ok := strings.Cut(line, " ")
	// Every member has a digest: shorter ones would take much more memory than their line.
	ok = ok && strings.Count(data, ",")*24 <= len(data)+1024
	return ok && sum == fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(data))) && json.Unmarshal([]byte(data), into) == nil
}

// Close closes the log and leaves it for the next push.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Remove removes the log.
func (l *Log) Remove() error {
	err := l.Close()
	if removed := l.root.Remove(l.name); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return nil
}

// Resume makes the push rely on what an interrupted one has stored under the same generation: exists reports what the store still has
// of it. No garbage collection removes objects of the current
// generation.
func (x *ObjectIndex) Resume(l *Log, exists func(o *state.Object) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log = l
	for i := range l.Entries {
		e := &l.Entries[i]
		o := state.Object{Size: e.Size, Generation: e.Generation, Push: e.Push}
		if !unhex(&o.Digest, e.SHA256) || o.Generation != x.generation || o.Push != x.push || !exists(&o) {
			continue
		}
		number, ok := x.byHash[o.Digest]
		if !ok {
			number = uint32(len(x.objects))
			x.objects = append(x.objects, o)
			x.byHash[o.Digest] = number
			x.resumed = append(x.resumed, o)
		}
		for _, f := range e.Files {
			var d state.Digest
			if unhex(&d, f.SHA256) && f.Offset >= 0 && f.Offset < o.Size {
				x.files[d] = state.Location{Objects: []uint32{number}, Offset: f.Offset}
			}
		}
	}
}

// record writes down what was stored. Without the log the next push sends it again, which is no reason to fail.
func (x *ObjectIndex) record(number uint32, members []member) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.log != nil && x.log.add(&x.objects[number], members) != nil {
		x.log = nil
	}
}

// Resumed returns the objects of an interrupted push of the plain layout, which are removed like those of this push once it is complete.
func (x *ObjectIndex) Resumed() []state.Object {
	if x.push == "" {
		return nil
	}
	return x.resumed
}

func unhex(d *state.Digest, s string) bool {
	if len(s) != hex.EncodedLen(len(d)) {
		return false
	}
	_, err := hex.Decode(d[:], []byte(s))
	return err == nil
}
