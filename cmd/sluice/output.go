package main

import (
	"fmt"
	"io"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// output is where a command's output goes, and how much of it has come.
type output struct {
	json    bool // keep the beginning instead of passing it on
	streams [2]stream
	broken  bool
}

type stream struct {
	name schemas.Stream
	to   io.Writer
	kept []byte
	end  int64 // the offset after what came last
}

func newOutput(stdout, stderr io.Writer, json bool) *output {
	return &output{json: json, streams: [2]stream{{name: schemas.Stdout, to: stdout}, {name: schemas.Stderr, to: stderr}}}
}

// write passes a chunk on, and says whether its reader turned out to have gone, once.
func (o *output) write(k *schemas.Chunk) (gone bool) {
	s := &o.streams[0]
	if k.Stream == schemas.Stderr {
		s = &o.streams[1]
	}
	s.end = k.End()
	return o.pass(s, k.Data)
}

func (o *output) pass(s *stream, p []byte) (gone bool) {
	if o.json {
		room := max(int(schemas.DefaultOutputLimit)-len(s.kept), 0)
		s.kept = append(s.kept, p[:min(room, len(p))]...)
		return false
	}
	_, err := s.to.Write(p)
	if err == nil || o.broken {
		return false
	}
	o.broken = true
	return true
}

// finish makes up from the result for what did not come by the log, which may have had no room for it, or have aged out. It
// returns how many bytes are missing all the same.
func (o *output) finish(r *schemas.Result) (missing int64, err error) {
	for i := range o.streams {
		s := &o.streams[i]
		recorded, err := r.Output(s.name)
		if err != nil {
			return 0, err
		}
		total := r.StdoutBytes
		if s.name == schemas.Stderr {
			total = r.StderrBytes
		}
		if n := int64(len(recorded)); n > s.end {
			o.pass(s, recorded[s.end:])
			s.end = n
		}
		missing += max(0, total-s.end)
		if o.json && len(s.kept) > len(recorded) {
			r.SetOutput(s.name, s.kept, total) // the record had room for less
		}
	}
	return missing, nil
}

// ended prints what is to be said of the end, and returns the exit code: the command's own, unless something is wrong that it
// does not tell.
func (m *Main) ended(r *schemas.Result, out *output) (int, error) {
	missing, err := out.finish(r)
	if err != nil {
		return 0, err
	}
	code := r.ExitCode
	// A workspace that is too full now is the next command's trouble.
	if code == 0 && r.Error != nil && r.Error.Code != schemas.CodeLimitExceeded {
		code = schemas.ExitSluiceFailed
	}
	if out.json {
		return code, m.printJSON(r)
	}
	switch {
	case r.Error != nil:
		m.say(r.Error)
	case r.Reason == schemas.ReasonTimedOut:
		m.note(fmt.Sprintf("timed out after %s: the process tree was ended", time.Duration(r.DurationMS*float64(time.Millisecond)).Round(time.Millisecond)))
	}
	if missing > 0 {
		m.note(fmt.Sprintf("%d bytes of output are missing here: they are not, or no longer, in the log", missing))
	}
	return code, nil
}
