package answer

import (
	"bytes"
	"io"

	"github.com/sluice-dev/sluice/schemas"
)

// maxLine is the longest line that is taken for JSON, in bytes. An agent's last line repeats its whole answer.
const maxLine = 4 << 20

// Reader takes an agent's standard output in pieces of any size. The zero value of each field but To is what suits.
type Reader struct {
	// To gets the answer's text as it comes. Required. After its first error it gets nothing more.
	To io.Writer

	held  []byte // the beginning of a line that may be JSON
	inner bool   // in the middle of a line that is not
	mode  mode
	spoke bool // the text so far holds what the agent said
	usage schemas.Usage
	found bool
	err   error
}

type mode int

const (
	unknown mode = iota // before the first line
	text
	jsonl
)

// Write reads on. The error is To's; the output is read on all the same.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		piece, rest, whole := bytes.Cut(p, []byte("\n"))
		switch {
		case r.inner || len(r.held) == 0 && !opens(piece) && len(bytes.TrimLeft(piece, " \t\r")) > 0:
			r.plain(p[:len(p)-len(rest)])
			r.inner = !whole
		default:
			r.held = append(r.held, p[:len(p)-len(rest)]...)
			if whole {
				r.line()
			} else if len(r.held) > maxLine {
				r.plain(r.held)
				r.held, r.inner = nil, true
			}
		}
		p = rest
	}
	return n, r.err
}

// opens says whether a line that begins so may be a JSON object.
func opens(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r")
	return len(b) > 0 && b[0] == '{'
}

// line takes what is held for a whole line.
func (r *Reader) line() {
	held := r.held
	r.held = r.held[:0]
	if len(bytes.TrimSpace(held)) == 0 {
		if r.mode != jsonl {
			r.emit(held)
		}
		return
	}
	l, ok := parse(held)
	if !ok {
		r.plain(held)
		return
	}
	if r.mode == unknown && !l.final() {
		r.mode = jsonl
	}
	if u, ok := l.usage(); ok {
		if sum := r.usage.Add(u); max(sum.InputTokens, sum.OutputTokens) <= maxTokens {
			r.usage, r.found = sum, true
		}
	}
	switch {
	case l.final():
		if !r.spoke && l.Result != "" {
			r.say(l.Result)
		}
	case r.mode == jsonl:
		if said := l.said(); said != "" {
			r.say(said)
		}
	default:
		r.plain(held)
	}
}

// say emits what an agent said inside a JSON line.
func (r *Reader) say(s string) {
	r.spoke = true
	r.emit([]byte(s))
	if s[len(s)-1] != '\n' {
		r.emit([]byte("\n"))
	}
}

// plain emits what is no JSON line.
func (r *Reader) plain(p []byte) {
	if r.mode == unknown {
		r.mode = text
	}
	r.spoke = r.spoke || r.mode == text
	r.emit(p)
}

func (r *Reader) emit(p []byte) {
	if r.err == nil {
		_, r.err = r.To.Write(p)
	}
}

// Close takes what is left for the last line, which need not end. The error is To's.
func (r *Reader) Close() error {
	if len(r.held) > 0 {
		r.line()
	}
	return r.err
}

// Usage is what the agent reported, added up; false where it reported nothing.
func (r *Reader) Usage() (schemas.Usage, bool) { return r.usage, r.found }
