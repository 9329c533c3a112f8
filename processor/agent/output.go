// Package agent reads what an agent prints: the answer, and what it says it used.
//
// An agent that prints JSON lines ends with one of the form
//
//	{"type":"result","result":"the answer","usage":{"input_tokens":12,"output_tokens":34}}
//
// Everything here is printed by what a sandbox runs, and so hostile: nothing of it can cost more memory than is said here, or count for
// more than it can be.
package agent

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
)

// Bounds of what is read.
const (
	// MaxLine is the longest line that is looked into, in bytes: the longest answer, with every byte of it escaped. What is longer is
	// passed over.
	MaxLine = 6*schemas.MaxPromptBytes + 64<<10
	// MaxTokens is the most tokens that are believed, of one line and in all.
	MaxTokens = 1_000_000_000_000
)

// Output reads an agent's standard output as it is printed, in pieces of any size. The zero value is ready. It is for one
// goroutine.
type Output struct {
	line    []byte // what has come of a line that has not ended
	tooLong bool   // the line is over MaxLine: the rest of it is passed over

	usage  schemas.Usage
	used   bool
	answer string
	whole  bool // there was an answer
	cut    bool
}

// Write takes the next piece. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			o.hold(p)
			return n, nil
		}
		if len(o.line) == 0 && !o.tooLong && end <= MaxLine {
			o.read(p[:end]) // most lines come whole, and need not be copied
		} else {
			o.hold(p[:end])
			o.end()
		}
		p = p[end+1:]
	}
}

// Close takes the last line, which need not end.
func (o *Output) Close() { o.end() }

// Usage is the sum of what the lines said, and whether any did.
func (o *Output) Usage() (schemas.Usage, bool) { return o.usage, o.used }

// Answer is the result of the last line that had one, cut after [schemas.MaxPromptBytes], and whether there was one.
func (o *Output) Answer() (text string, truncated, ok bool) { return o.answer, o.cut, o.whole }

// hold keeps a part of a line.
func (o *Output) hold(p []byte) {
	switch {
	case o.tooLong:
	case len(o.line)+len(p) > MaxLine:
		o.tooLong, o.line = true, nil
	case len(o.line)+len(p) > 0 && first(o.line, p) != '{':
		o.tooLong, o.line = true, nil // no JSON object: nothing of it need be kept
	default:
		o.line = append(o.line, p...)
	}
}

// blanks may stand around a line's JSON.
const blanks = " \t\r"

// first is the first byte of a line that comes in two parts, after blanks.
func first(a, b []byte) byte {
	for _, part := range [][]byte{a, b} {
		if t := bytes.TrimLeft(part, blanks); len(t) > 0 {
			return t[0]
		}
	}
	return '{' // blanks alone, so far
}

// end is the end of the line that is held.
func (o *Output) end() {
	if !o.tooLong {
		o.read(o.line)
	}
	o.tooLong = false
	if cap(o.line) > 64<<10 {
		o.line = nil
	}
	o.line = o.line[:0]
}

// result is a line of the type result. What it holds beside is of no interest.
type result struct {
	Type   string          `json:"type"`
	Result json.RawMessage `json:"result"`
	Usage  *struct {
		InputTokens  json.Number `json:"input_tokens"`
		OutputTokens json.Number `json:"output_tokens"`
	} `json:"usage"`
}

var resultWord = []byte(`"result"`)

// read looks into a whole line.
func (o *Output) read(line []byte) {
	line = bytes.Trim(line, blanks)
	// Most of what agents print is something else, and need not be parsed.
	if len(line) == 0 || line[0] != '{' || !bytes.Contains(line, resultWord) || tooDeep(line) {
		return
	}
	var r result
	if json.Unmarshal(line, &r) != nil || r.Type != "result" {
		return
	}
	var text string
	if len(r.Result) > 0 && r.Result[0] == '"' && json.Unmarshal(r.Result, &text) == nil {
		o.answer, o.cut = clip(text)
		o.whole = true
	}
	if r.Usage == nil {
		return
	}
	in, inOK := tokens(r.Usage.InputTokens)
	out, outOK := tokens(r.Usage.OutputTokens)
	if inOK && outOK {
		o.used = true
		o.usage.InputTokens = min(o.usage.InputTokens+in, MaxTokens)
		o.usage.OutputTokens = min(o.usage.OutputTokens+out, MaxTokens)
	}
}

// maxDepth is how deep a line may be nested; a result's usage is two deep, and what agents add beside it a few more.
const maxDepth = 64

// tooDeep says whether a line has more brackets open at once than a result has.
func tooDeep(line []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// tokens reads a count; a missing one is 0. One that is no count is not believed, and nor is its line.
func tokens(n json.Number) (int64, bool) {
	if n == "" {
		return 0, true
	}
	v, err := n.Int64()
	return v, err == nil && v >= 0 && v <= MaxTokens
}

// clip cuts a text where it is longer than a message may be, after a whole character.
func clip(s string) (string, bool) {
	if len(s) <= schemas.MaxPromptBytes {
		return s, false
	}
	end := schemas.MaxPromptBytes
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.Clone(s[:end]), true
}
