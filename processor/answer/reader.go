package answer

import (
	"bytes"
	"io"

	"github.com/sluice-dev/sluice/schemas"
)

// maxLine is the longest line that is parsed as JSON, in bytes. An agent's last line repeats its whole answer.
const maxLine = 4 << 20

// Reader is an io.WriteCloser that takes an agent's standard output in pieces of any size, and writes the answer's text on.
type Reader struct {
	to       io.Writer
	format   string // empty until the first line decides
	held     []byte // the start of a line that may be JSON
	midLine  bool   // the rest of the current line is text
	answered bool   // text of the answer was written: a result line only repeats it
	usage    schemas.Usage
	reported bool // usage is set
	err      error
}

// NewReader returns a Reader that writes the answer's text to to. output is the template's agent.output: [schemas.OutputText],
// [schemas.OutputJSONLines], or empty to let the first line decide. After the first error of to, nothing more is written to it.
func NewReader(to io.Writer, output string) *Reader {
	// The text format has no other source for the answer than the text itself.
	return &Reader{to: to, format: output, answered: output == schemas.OutputText}
}

// Write takes the next piece of output. It always takes all of p, and returns the first error of the destination.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		piece, rest, whole := bytes.Cut(p, []byte("\n"))
		switch {
		case r.midLine || len(r.held) == 0 && startsText(piece):
			r.plain(p[:len(p)-len(rest)])
			r.midLine = !whole
		default:
			r.held = append(r.held, p[:len(p)-len(rest)]...)
			if whole {
				r.line()
			} else if len(r.held) > maxLine {
				r.plain(r.held)
				r.held, r.midLine = nil, true
			}
		}
		p = rest
	}
	return n, r.err
}

// startsText reports whether a line with this start cannot be a JSON object. A blank start leaves it open.
func startsText(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r")
	return len(b) > 0 && b[0] != '{'
}

// line handles the held bytes as a complete line.
func (r *Reader) line() {
	held := r.held
	r.held = r.held[:0]
	if len(bytes.TrimSpace(held)) == 0 {
		if r.format != schemas.OutputJSONLines {
			r.write(held)
		}
		return
	}
	l, ok := parse(held)
	if !ok {
		r.plain(held)
		return
	}
	if r.format == "" && !l.isResult() {
		r.format = schemas.OutputJSONLines
	}
	if u, ok := l.usage(); ok {
		if sum := r.usage.Add(u); max(sum.InputTokens, sum.OutputTokens) <= maxTokens {
			r.usage, r.reported = sum, true
		}
	}
	switch {
	case l.isResult():
		if !r.answered {
			r.answer(l.Result)
		}
	case r.format == schemas.OutputJSONLines:
		r.answer(l.text())
	default:
		r.plain(held)
	}
}

// answer writes the text of a JSON line, followed by a line feed.
func (r *Reader) answer(s string) {
	if s == "" {
		return
	}
	r.answered = true
	r.write([]byte(s))
	if s[len(s)-1] != '\n' {
		r.write([]byte("\n"))
	}
}

// plain writes output that is not a JSON line.
func (r *Reader) plain(p []byte) {
	if r.format == "" {
		r.format = schemas.OutputText
	}
	r.answered = r.answered || r.format == schemas.OutputText
	r.write(p)
}

func (r *Reader) write(p []byte) {
	if r.err == nil {
		_, r.err = r.to.Write(p)
	}
}

// Close handles the rest of the output as the last line, which may lack its line feed. It returns the first error of the
// destination, and does not close it.
func (r *Reader) Close() error {
	if len(r.held) > 0 {
		r.line()
	}
	return r.err
}

// Usage returns the sum of the tokens that the agent reported; false when it reported none.
func (r *Reader) Usage() (schemas.Usage, bool) { return r.usage, r.reported }
