package history

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
)

// excused reports that a result may have less output than the process printed: something says so, or LOG has dropped its beginning.
func (c *checker) excused(p *process, r *schemas.Result) bool {
	return r.Error != nil || len(c.Gaps[p.id]) > 0 || r.Log != nil && r.Log.FirstSeq < c.FirstChunk
}

// reading is how far a reader gets that reads the chunks of one run in the order of LOG.
type reading struct {
	pos     map[schemas.Stream]int64
	number  int64 // the highest so far
	jumped  int64 // the number before the last hole, -1 for none: what came after it may be stored again
	missing map[schemas.Stream]*schemas.Chunk
}

// checkOutput reads the output of a process as a reader does, and compares it with what the command prints and with the result.
func (c *checker) checkOutput(p *process) {
	o := p.ranExec()
	var r *reading
	var epoch uint64
	for _, k := range p.chunks {
		// A second run starts over.
		if r == nil || k.Epoch > epoch || k.Number == 1 && k.Offset == 0 && p.count(schemas.TypeProcessAccepted) > 1 {
			r = &reading{jumped: -1, pos: make(map[schemas.Stream]int64), missing: make(map[schemas.Stream]*schemas.Chunk)}
			switch end := p.end(); {
			case c.FirstChunk == 1: // LOG has dropped nothing
			case end == nil || c.excused(p, &end.Result): // begin where LOG begins
				r.number, r.pos[k.Stream] = k.Number-1, k.Offset
			case end.Result.Log != nil && end.Result.Log.StdoutFrom+end.Result.Log.StderrFrom > 0: // begin where the result says that it begins
				r.number = k.Number - 1
				r.pos[schemas.Stdout], r.pos[schemas.Stderr] = end.Result.Log.StdoutFrom, end.Result.Log.StderrFrom
			}
			epoch = k.Epoch
		}
		if o != nil {
			want := o.Stdout
			if k.Stream == schemas.Stderr {
				want = o.Stderr
			}
			if rest := want[min(k.Offset, int64(len(want))):]; !bytes.HasPrefix(rest, k.Data) {
				c.add(WrongOutput, p, "LOG %d, %s at offset %d: %s", k.Seq, k.Stream, k.Offset, difference(k.Data, rest))
			}
		}
		c.take(p, r, k)
	}
	if r == nil {
		r = &reading{}
	}
	end := p.end()
	if end == nil || end.Type == schemas.TypeProcessLost || c.excused(p, &end.Result) {
		return // a lost process says by its error that output may be missing
	}
	for _, s := range schemas.Streams() {
		total := end.Result.StdoutBytes
		if s == schemas.Stderr {
			total = end.Result.StderrBytes
		}
		switch k := r.missing[s]; {
		case k != nil:
			c.add(Hole, p, "%s: LOG ends at offset %d, then LOG %d (chunk %d) has offset %d; the result says %d bytes",
				s, r.pos[s], k.Seq, k.Number, k.Offset, total)
		case r.pos[s] < total:
			c.add(Hole, p, "%s: LOG ends at offset %d, the result says %d bytes; records: %s", s, r.pos[s], total, p.story())
		}
	}
	complete := end.Result.Reason == schemas.ReasonExited && !p.stopped()
	if o != nil && complete && end.Result.StdoutBytes != int64(len(o.Stdout)) {
		c.add(WrongOutput, p, "the result says %d bytes, the command prints %d; records: %s", end.Result.StdoutBytes, len(o.Stdout), p.story())
	}
	if n := len(p.chunks); n > 0 && !c.mayRepeat(p) && (end.Result.Log == nil || p.chunks[n-1].Seq > end.Result.Log.LastSeq) {
		c.add(LateOutput, p, "LOG %d is not in the range %+v of the result", p.chunks[n-1].Seq, end.Result.Log)
	}
}

// take reads one chunk. A writer that finds a chunk missing stores it and all later ones again, so what follows a hole may come twice.
func (c *checker) take(p *process, r *reading, k *schemas.Chunk) {
	pos := r.pos[k.Stream]
	switch {
	case k.Offset > pos:
		if r.missing[k.Stream] == nil {
			r.missing[k.Stream] = k
		}
	case k.Offset < pos:
		if (r.jumped < 0 || k.Number <= r.jumped) && !c.mayRepeat(p) {
			c.add(Duplicate, p, "LOG %d (chunk %d, %s, offset %d, epoch %d): a reader is at offset %d already",
				k.Seq, k.Number, k.Stream, k.Offset, k.Epoch, pos)
		}
		fallthrough
	default:
		r.pos[k.Stream] = max(pos, k.End())
		if m := r.missing[k.Stream]; m != nil && m.Offset <= r.pos[k.Stream] {
			r.missing[k.Stream] = nil // it was stored again, or will be
		}
	}
	if k.Number > r.number+1 {
		r.jumped = r.number
	}
	r.number = max(r.number, k.Number)
}

// mayRepeat reports whether a server was away while the process ran. One that was frozen stores late what it had received before, when
// its writer has stored it again; and a writer that resumes where LOG has dropped the beginning stores from the beginning. Readers leave
// out what they have, and what is beyond the result's range: checkOutput compares each chunk with what the command prints, and
// checkFollowers what readers get.
func (c *checker) mayRepeat(p *process) bool {
	if len(p.records) == 0 {
		return false
	}
	begin, end := p.records[0].Stored, p.records[len(p.records)-1].Stored
	return c.FirstChunk > 1 || slices.ContainsFunc(c.Broken, func(s Span) bool { return s.From.Before(end) && s.To.After(begin) })
}

// checkFollowers compares what followers received with what the command prints.
func (c *checker) checkFollowers(p *process) {
	for _, o := range p.ops {
		if !o.Follows || o.Result == nil || o.Result.Fingerprint != o.Fingerprint || o.Command.Exec == nil {
			continue
		}
		switch {
		case !bytes.HasPrefix(o.Stdout, o.Followed):
			c.add(WrongOutput, p, "a follower's output: %s; %s", difference(o.Followed, o.Stdout), o.jump())
		case int64(len(o.Followed)) != o.Result.StdoutBytes && !c.excused(p, o.Result) && o.Result.Reason != schemas.ReasonLost:
			c.add(Hole, p, "a follower received %d of %d bytes; records: %s", len(o.Followed), o.Result.StdoutBytes, p.story())
		}
	}
}

// jump describes the chunks around the first one that does not follow the one before it.
func (o *Op) jump() string {
	end := int64(0)
	for i, k := range o.Chunks {
		if k.Offset != end {
			return fmt.Sprintf("chunks %+v, gaps %+v", o.Chunks[max(0, i-2):min(len(o.Chunks), i+2)], o.Gaps)
		}
		end = k.Offset + k.Size
	}
	return "its chunks follow each other"
}
