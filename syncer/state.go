package syncer

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"
)

// StateVersion is the version of the documented state format that is read and written. Any other is refused.
const StateVersion = "1.0"

// Layout says how content lies in the store.
type Layout string

// The layouts.
const (
	// Packed keeps content in immutable objects named by their SHA-256, small files together in packs. It has
	// versions, and a reader never sees a mixed tree.
	Packed Layout = "packed"
	// Plain keeps each file as an object under its own path, for other tools to read. It has no versions.
	Plain Layout = "plain"
)

// Object is one immutable object of the packed layout: a pack of small files, or a chunk of a large one.
type Object struct {
	Digest     Digest // of all of its bytes
	Size       int64  // bytes
	Generation uint64 // of the state under which it was stored; part of its key
	// Push is set in the plain layout: the random name of the push that stored the object, and that removes it again
	// once the files lie under their own paths. It is part of the key, so that no other push relies on the object.
	Push string
}

// Pending is a file of the plain layout whose content is stored, and counts, but does not lie under its own path yet.
type Pending struct {
	Path string
	// Over is the token of the object that it replaces there; "" when there is none.
	Over string
}

// State is what a workspace was at one time: the documented file format with what Sluice needs beside it. The format
// is {version, last_synced_at, files [{path, checksum, size, modified_at}]}; every further field is ignored by
// readers that know that format alone, and folders and symlinks stand outside files for their sake.
type State struct {
	SyncedAt time.Time
	Nodes    []Node // in the order of a walk, no path twice

	Layout     Layout   // "" for a state that another tool wrote
	ID         string   // the version's name: its time and a random suffix
	Parent     string   // the ID of the state this one replaced; "" for the first
	Generation uint64   // goes up with each garbage collection
	Floor      string   // versions whose ID is below this are gone or going
	Count      uint64   // how many states there have been, this one included
	Objects    []Object // what the nodes' locations refer to
	Remote     string   // in the local state: where it was last synced with

	// In the plain layout, what a push that has been committed still has to do: files to put under their own paths,
	// and paths whose objects go. Both in the order of a walk.
	Pending  []Pending
	Dropping []string
}

// settled says whether every file lies under its own path.
func (s *State) settled() bool { return len(s.Pending)+len(s.Dropping) == 0 }

// Encode is the state as JSON. Names that are not UTF-8 are given readably in "path", and byte for byte in
// "path_base64".
func (s *State) Encode() []byte {
	b := make([]byte, 0, 512+len(s.Objects)*100+len(s.Nodes)*280)
	b = append(b, `{"version":"`+StateVersion+`","last_synced_at":`...)
	b = appendTime(b, s.SyncedAt)
	b = append(b, ",\"files\":["...)
	first := true
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == File {
			b = appendSeparator(b, &first)
			b = appendFile(b, n)
		}
	}
	b = append(b, "],\n\"sluice\":{\"format\":1,\"layout\":"...)
	layout := s.Layout
	if layout == "" {
		layout = Plain // which is what a tool that knows no layouts has written
	}
	b = appendString(b, string(layout))
	for _, f := range []struct{ name, value string }{
		{"id", s.ID}, {"parent", s.Parent}, {"floor", s.Floor}, {"remote", s.Remote},
	} {
		if f.value != "" {
			b = append(b, `,"`+f.name+`":`...)
			b = appendString(b, f.value)
		}
	}
	b = append(b, `,"generation":`...)
	b = strconv.AppendUint(b, s.Generation, 10)
	b = append(b, `,"count":`...)
	b = strconv.AppendUint(b, s.Count, 10)
	b = append(b, ",\n\"objects\":["...)
	first = true
	for i := range s.Objects {
		o := &s.Objects[i]
		b = appendSeparator(b, &first)
		b = append(b, `{"sha256":"`...)
		b = hex.AppendEncode(b, o.Digest[:])
		b = append(b, `","size":`...)
		b = strconv.AppendInt(b, o.Size, 10)
		b = append(b, `,"generation":`...)
		b = strconv.AppendUint(b, o.Generation, 10)
		if o.Push != "" {
			b = append(b, `,"push":`...)
			b = appendString(b, o.Push)
		}
		b = append(b, '}')
	}
	b = append(b, "],\n\"folders\":["...)
	first = true
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == Dir {
			b = appendSeparator(b, &first)
			b = append(b, '{')
			b = appendBytes(b, "path", n.Path)
			b = appendMode(b, n.Mode)
			b = append(b, '}')
		}
	}
	b = append(b, "],\n\"symlinks\":["...)
	first = true
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == Symlink {
			b = appendSeparator(b, &first)
			b = append(b, '{')
			b = appendBytes(b, "path", n.Path)
			b = append(b, ',')
			b = appendBytes(b, "target", n.Target)
			b = append(b, '}')
		}
	}
	b = append(b, ']')
	b = s.appendUnsettled(b)
	return append(b, "}}\n"...)
}

// appendUnsettled adds what a push has still to do, which most states have nothing of.
func (s *State) appendUnsettled(b []byte) []byte {
	if s.settled() {
		return b
	}
	b = append(b, ",\n\"pending\":["...)
	first := true
	for _, p := range s.Pending {
		b = appendSeparator(b, &first)
		b = append(b, '{')
		b = appendBytes(b, "path", p.Path)
		b = append(b, `,"over":`...)
		b = appendString(b, p.Over)
		b = append(b, '}')
	}
	b = append(b, "],\n\"dropping\":["...)
	first = true
	for _, p := range s.Dropping {
		b = appendSeparator(b, &first)
		b = append(b, '{')
		b = appendBytes(b, "path", p)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendSeparator(b []byte, first *bool) []byte {
	if *first {
		*first = false
		return append(b, '\n')
	}
	return append(b, ",\n"...)
}

func appendFile(b []byte, n *Node) []byte {
	b = append(b, '{')
	b = appendBytes(b, "path", n.Path)
	b = append(b, `,"checksum":"`...)
	b = hex.AppendEncode(b, n.MD5[:])
	b = append(b, `","size":`...)
	b = strconv.AppendInt(b, n.Size, 10)
	b = append(b, `,"modified_at":`...)
	b = appendTime(b, n.ModTime())
	b = appendMode(b, n.Mode)
	if n.Digest != (Digest{}) {
		b = append(b, `,"digest":"`...)
		b = hex.AppendEncode(b, n.Digest[:])
		b = append(b, '"')
	}
	if n.Sparse {
		b = append(b, `,"sparse":true`...)
	}
	switch objects := n.At.Objects; {
	case len(objects) == 1:
		b = append(b, `,"at":[`...)
		b = strconv.AppendUint(b, uint64(objects[0]), 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, n.At.Offset, 10)
		b = append(b, ']')
	case len(objects) > 1:
		b = append(b, `,"chunks":[`...)
		for i, o := range objects {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(o), 10)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendMode(b []byte, mode uint16) []byte {
	b = append(b, `,"mode":"0`...)
	b = strconv.AppendUint(b, uint64(mode), 8)
	return append(b, '"')
}

// appendTime keeps to the years that RFC 3339 has: a file may well claim to be from the year 30000.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		t = time.Unix(0, 0).UTC()
	}
	b = append(b, '"')
	b = t.AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

func appendBytes(b []byte, name, value string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":`...)
	b = appendString(b, value)
	if !utf8.ValidString(value) {
		b = append(b, `,"`...)
		b = append(b, name...)
		b = append(b, `_base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, []byte(value))
		b = append(b, '"')
	}
	return b
}

func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ' || c == 0x7f:
				b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		b = utf8.AppendRune(b, r)
		i += size
	}
	return append(b, '"')
}
