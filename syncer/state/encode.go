package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"unicode/utf8"
)

// Encode returns the state as JSON. Times are Unix seconds; "modified_ns" and "last_synced_ns" hold their nanoseconds where
// those are not 0. A name that is not UTF-8 is readable in "path" and exact in "path_base64". The last line is a checksum. Of a state
// with segments it returns the root, in another version of the format.
func (s *State) Encode() []byte {
	if len(s.Segments.List) == 0 {
		return s.encode(FormatVersion, wholeFormat, nil)
	}
	root, removed := s.root()
	return root.encode(segmentedVersion, segmentedFormat, removed)
}

func (s *State) encode(version string, format int64, removed []string) []byte {
	b := make([]byte, 0, 512+len(s.Objects)*100+len(s.Nodes)*280+len(s.Segments.List)*160)
	b = append(b, `{"version":"`+version+`","last_synced_at":`...)
	var syncedAt, syncedNS int64 // 0 where there was no sync
	if !s.SyncedAt.IsZero() {
		syncedAt, syncedNS = s.SyncedAt.Unix(), int64(s.SyncedAt.Nanosecond())
	}
	b = strconv.AppendInt(b, syncedAt, 10)
	b = appendList(b, ",\"files\":[", s.Nodes, s.appendFile)
	b = append(b, ",\n\"sluice\":{\"format\":"...)
	b = strconv.AppendInt(b, format, 10)
	b = append(b, `,"layout":`...)
	b = appendString(b, string(cmp.Or(s.Layout, Plain))) // a tool that knows no layouts writes plain files
	b = appendNumber(b, `,"last_synced_ns":`, syncedNS)
	for _, f := range []struct{ name, value string }{
		{"id", s.ID}, {"floor", s.Floor}, {"remote", s.Remote},
	} {
		if f.value != "" {
			b = append(b, `,"`+f.name+`":`...)
			b = appendString(b, f.value)
		}
	}
	if len(s.Lineage) > 0 {
		b = appendList(b, ",\n\"lineage\":[", s.Lineage, func(b []byte, id *string) []byte { return appendString(b, *id) })
	}
	b = append(b, `,"generation":`...)
	b = strconv.AppendUint(b, s.Generation, 10)
	b = append(b, `,"count":`...)
	b = strconv.AppendUint(b, s.Count, 10)
	b = appendList(b, ",\n\"objects\":[", s.Objects, appendObject)
	b = appendList(b, ",\n\"folders\":[", s.Nodes, appendFolder)
	b = appendList(b, ",\n\"symlinks\":[", s.Nodes, appendSymlink)
	if !s.Published() {
		b = appendList(b, ",\n\"pending\":[", s.Pending, func(b []byte, p *Pending) []byte {
			b = appendBytes(append(b, '{'), "path", p.Path)
			b = appendString(append(b, `,"over":`...), p.Over)
			return append(b, '}')
		})
		b = appendList(b, ",\n\"dropping\":[", s.Dropping, appendPath)
	}
	if len(s.Segments.List) > 0 {
		b = appendList(b, ",\n\"removed\":[", removed, appendPath)
		b = appendList(b, ",\n\"segment_objects\":[", s.Segments.Objects, appendObject)
		b = appendList(b, ",\n\"segments\":[", s.Segments.List, appendSegment)
	}
	return appendSum(b, b)
}

// The line with the checksum, which ends a state: the SHA-256 of every byte before it.
const (
	sumOpen  = ",\n\"sum\":\""
	sumClose = "\"}}\n"
)

func appendSum(b, of []byte) []byte {
	sum := sha256.Sum256(of)
	b = append(b, sumOpen...)
	b = hex.AppendEncode(b, sum[:])
	return append(b, sumClose...)
}

// appendNumber appends a field that is left out where it is 0.
func appendNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

// appendList appends the items, a line each. item returns nil for one to leave out.
func appendList[T any](b []byte, open string, items []T, item func(b []byte, v *T) []byte) []byte {
	b = append(b, open...)
	separator := "\n"
	for i := range items {
		if with := item(append(b, separator...), &items[i]); with != nil {
			b, separator = with, ",\n"
		}
	}
	return append(b, ']')
}

func appendObject(b []byte, o *Object) []byte {
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
	return append(b, '}')
}

func appendPath(b []byte, path *string) []byte {
	return append(appendBytes(append(b, '{'), "path", *path), '}')
}

func appendSegment(b []byte, s *Segment) []byte {
	b = appendBytes(append(b, '{'), "first", s.First)
	b = strconv.AppendUint(append(b, `,"at":[`...), uint64(s.Object), 10)
	b = strconv.AppendInt(append(b, ','), s.Offset, 10)
	b = strconv.AppendInt(append(b, ','), s.Size, 10)
	b = strconv.AppendInt(append(b, `],"bytes":`...), s.Bytes, 10)
	b = strconv.AppendInt(append(b, `,"entries":`...), int64(s.Entries), 10)
	b = hex.AppendEncode(append(b, `,"sha256":"`...), s.Digest[:])
	return append(b, `"}`...)
}

func appendFolder(b []byte, n *Node) []byte {
	if n.Kind != Dir {
		return nil
	}
	return append(appendMode(appendBytes(append(b, '{'), "path", n.Path), n.Mode), '}')
}

func appendSymlink(b []byte, n *Node) []byte {
	if n.Kind != Symlink {
		return nil
	}
	b = appendBytes(append(b, '{'), "path", n.Path)
	b = appendBytes(append(b, ','), "target", n.Target)
	return append(b, '}')
}

func (s *State) appendFile(b []byte, n *Node) []byte {
	if n.Kind != File {
		return nil
	}
	b = append(b, '{')
	b = appendBytes(b, "path", n.Path)
	b = append(b, `,"checksum":"`...)
	b = hex.AppendEncode(b, n.MD5[:])
	b = append(b, `","size":`...)
	b = strconv.AppendInt(b, n.Size, 10)
	b = append(b, `,"modified_at":`...)
	seconds, nanoseconds := n.Modified/1e9, n.Modified%1e9
	if nanoseconds < 0 { // before 1970: seconds are rounded down
		seconds, nanoseconds = seconds-1, nanoseconds+1e9
	}
	b = strconv.AppendInt(b, seconds, 10)
	b = appendNumber(b, `,"modified_ns":`, nanoseconds)
	b = appendMode(b, n.Mode)
	if n.Digest != (Digest{}) {
		b = append(b, `,"digest":"`...)
		b = hex.AppendEncode(b, n.Digest[:])
		b = append(b, '"')
	}
	if n.Sparse {
		b = append(b, `,"sparse":true`...)
	}
	if etag := s.ETags[n.Path]; etag != "" {
		b = appendString(append(b, `,"etag":`...), etag)
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
