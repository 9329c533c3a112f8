package mcp

import (
	"encoding/base64"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
)

// Limits on what a result returns.
const (
	// defaultBytes is how much of each stream, or of a file, a result returns by default, in bytes, and maxBytes the most.
	defaultBytes = 16 << 10
	maxBytes     = 128 << 10
	// maxContent is the most bytes of an argument that is content.
	maxContent = 1 << 20
)

// Encodings of content.
const (
	encodingText   = "text"
	encodingBase64 = "base64"
)

// output is a part of a stream, or of a file.
type output struct {
	Text       string `json:"text" jsonschema:"What was read, from offset on. In text, what is not UTF-8 is replaced by U+FFFD."`
	Encoding   string `json:"encoding,omitempty" jsonschema:"base64 when text is base64."`
	Offset     int64  `json:"offset" jsonschema:"Where text begins, in bytes."`
	NextOffset int64  `json:"next_offset" jsonschema:"Where to read on, in bytes."`
	More       bool   `json:"more,omitempty" jsonschema:"There is more at next_offset."`
	Tail       string `json:"tail,omitempty" jsonschema:"The end of the output when its middle is left out."`
	TailOffset int64  `json:"tail_offset,omitempty" jsonschema:"Where tail begins, in bytes."`
	Bytes      int64  `json:"bytes,omitempty" jsonschema:"All bytes that were printed so far."`
	Binary     bool   `json:"binary,omitempty" jsonschema:"Some bytes are not UTF-8 and were replaced. Read with encoding base64 to get them."`
	Missing    bool   `json:"missing,omitempty" jsonschema:"Some output is lost: the log does not keep it, or no longer."`
}

// piece returns bytes as they are shown.
func piece(data []byte, offset int64, encoding string) output {
	o := output{Offset: offset, NextOffset: offset + int64(len(data))}
	o.Text, o.Binary = shown(data, encoding)
	if encoding == encodingBase64 {
		o.Encoding = encodingBase64
	}
	return o
}

// shown returns bytes in an encoding, and whether some had to be replaced.
func shown(data []byte, encoding string) (text string, replaced bool) {
	if encoding == encodingBase64 {
		return base64.StdEncoding.EncodeToString(data), false
	}
	if utf8.Valid(data) {
		return string(data), false
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), true
}

// wholeEnd cuts a character off whose end is not in data. Text that is read on begins with it.
func wholeEnd(data []byte) []byte {
	for i := len(data) - 1; i >= max(0, len(data)-utf8.UTFMax); i-- {
		if utf8.RuneStart(data[i]) {
			if !utf8.FullRune(data[i:]) {
				return data[:i]
			}
			break
		}
	}
	return data
}

// wholeStart cuts a character off whose beginning is not in data.
func wholeStart(data []byte) []byte {
	for i := range min(len(data), utf8.UTFMax-1) {
		if utf8.RuneStart(data[i]) {
			return data[i:]
		}
	}
	return data
}

// captured has the beginning and the end of a stream, and holds no more of it than twice its limit.
type captured struct {
	max       int
	head      []byte
	tail      []byte
	begin     int64 // the offset of head
	end       int64
	missing   bool
	headEnded bool
}

// add adds a chunk. It reports whether all of it fits into head, and keeps what does.
func (c *captured) add(k *schemas.Chunk) (fits bool) {
	if k.Offset != c.end {
		switch {
		case k.Offset > c.end && c.end == c.begin: // nothing yet: begin here
			c.begin = k.Offset
		case k.Offset > c.end:
			c.headEnded, c.tail = true, nil
		default: // the process runs again
			*c = captured{max: c.max, begin: k.Offset}
		}
		c.missing = true
		c.end = k.Offset
	}
	c.end = k.End()
	data := k.Data
	if !c.headEnded {
		n := min(len(data), c.max-len(c.head))
		c.head = append(c.head, data[:n]...)
		fits = n == len(data)
		c.headEnded = !fits
	}
	half := c.max / 2
	if len(data) >= half {
		c.tail = append(c.tail[:0], data[len(data)-half:]...)
		return fits
	}
	if c.tail = append(c.tail, data...); len(c.tail) > c.max {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-half:]...)
	}
	return fits
}

// output returns the beginning, and the end where the middle is left out.
func (c *captured) output(encoding string) output {
	if !c.headEnded {
		o := piece(c.head, c.begin, encoding)
		o.Bytes, o.Missing = c.end, c.missing
		return o
	}
	half := c.max / 2
	head, tail := c.head[:min(half, len(c.head))], c.tail[max(0, len(c.tail)-half):]
	if encoding != encodingBase64 {
		head, tail = wholeEnd(head), wholeStart(tail)
	}
	o := piece(head, c.begin, encoding)
	o.Bytes, o.Missing, o.More, o.TailOffset = c.end, c.missing, true, c.end-int64(len(tail))
	var binary bool
	o.Tail, binary = shown(tail, encoding)
	o.Binary = o.Binary || binary
	return o
}

// lastLine is the last line of the output, for a person who watches.
func (c *captured) lastLine() string {
	tail := strings.TrimRight(string(c.tail), "\r\n")
	return cut(clean(tail[strings.LastIndexAny(tail, "\r\n")+1:]), maxLine)
}

// maxLine is the most bytes of a line of progress, and of a command in a list.
const maxLine = 200

// clean replaces what a terminal would interpret, and what is not UTF-8.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// cut cuts a text to some bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return string(wholeEnd([]byte(text[:most]))) + "…"
}

// decode returns the bytes of content in an argument. Errors: invalid_argument, too_large.
func decode(field, content, encoding string) ([]byte, error) {
	data := []byte(content)
	if encoding == encodingBase64 {
		var err error
		if data, err = base64.StdEncoding.DecodeString(content); err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s: it is not base64: %w", field, err)
		}
	}
	if len(data) > maxContent {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "%s: it has %d bytes, the limit is %d", field, len(data), maxContent)
	}
	return data, nil
}
