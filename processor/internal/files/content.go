package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox/files"
	"github.com/sluice-dev/sluice/schemas"
)

// watchPoll is how long a message of a watch waits for a change. It is less than the time after which callers send a message again.
const watchPoll = 3 * time.Second

// processID is the id of a transfer's process. It is none of a command, which begins with p: no record is kept of it.
func processID(key) string { return "f" + strings.ToLower(ulid.Make().String()) }

// answers are what a transfer answers once it has ended.
type answers struct {
	final *schemas.FileReply // to a message of an in operation, and to any after an error
	given []given            // the last pieces of an out operation
	size  int64              // of all content
	count int64
}

// given is a piece that was given to the caller.
type given struct {
	offset int64
	data   []byte
	end    bool
}

// take runs an in operation: it writes each piece to the process, in order.
func (t *transfer) take() answers {
	written := int64(0)
	for {
		p, ok := t.next()
		if !ok {
			t.kill()
			return answers{final: &schemas.FileReply{Error: t.canceled()}}
		}
		end := p.Offset + int64(len(p.Data))
		switch {
		case p.Offset > written: // one before it was lost, and both will come again
			continue
		case end <= written && !p.End: // its answer was lost
			p.answer(schemas.FileAnswer{Reply: &schemas.FileReply{}})
			continue
		}
		fresh := p.Data[min(written-p.Offset, int64(len(p.Data))):]
		err := error(nil)
		if len(fresh) > 0 {
			err = t.proc.WriteStdin(t.ctx, fresh)
		}
		written += int64(len(fresh))
		switch {
		case err != nil && t.ctx.Err() != nil:
			t.kill()
			final := &schemas.FileReply{Error: t.canceled()}
			p.answer(schemas.FileAnswer{Reply: final})
			return answers{final: final}
		case err == nil && !p.End:
			p.answer(schemas.FileAnswer{Reply: &schemas.FileReply{}})
			continue
		}
		_ = t.proc.CloseStdin() // the process may have ended
		final := t.collect()
		if final.Error == nil && err != nil {
			final = &schemas.FileReply{Error: schemas.Errorf(schemas.CodeUnavailable, "the process in the sandbox took only a part of the content")}
		}
		p.answer(schemas.FileAnswer{Reply: final})
		return answers{final: final, size: final.Bytes, count: final.Files}
	}
}

// give runs an out operation: it reads each piece from the process when the caller asks for it.
func (t *transfer) give() (last answers) {
	for {
		p, ok := t.next()
		if !ok {
			t.kill()
			return answers{final: &schemas.FileReply{Error: t.canceled()}}
		}
		if p.Offset != last.size {
			last.again(p) // one that is ahead of a lost one is asked for again
			continue
		}
		data, err := t.fill()
		if err != nil && !errors.Is(err, io.EOF) {
			if t.ctx.Err() != nil {
				err = t.canceled()
			}
			t.kill()
			last.final = &schemas.FileReply{Error: schemas.AsError(err)}
			p.answer(schemas.FileAnswer{Reply: last.final})
			return last
		}
		g := given{offset: last.size, data: data, end: err != nil}
		last.size += int64(len(data))
		if len(data) > 0 || g.end {
			last.given = append(last.given, g)
		}
		if over := len(last.given) - schemas.MaxFileWindow; over > 0 {
			last.given = append(last.given[:0], last.given[over:]...)
		}
		if g.end {
			last.given = last.given[max(0, len(last.given)-1):]
			last.count = t.count
		}
		p.answer(schemas.FileAnswer{Data: data, End: g.end})
		if g.end {
			return last
		}
	}
}

// again answers a message that was answered before.
func (a *answers) again(p piece) {
	for _, g := range a.given {
		if g.offset == p.Offset {
			p.answer(schemas.FileAnswer{Data: g.data, End: g.end})
			return
		}
	}
	switch {
	case a.final != nil:
		p.answer(schemas.FileAnswer{Reply: a.final})
	case len(a.given) > 0 && a.given[len(a.given)-1].end && p.Offset > a.size:
		p.answer(schemas.FileAnswer{End: true})
	}
}

// fill returns the next piece, with io.EOF for the last. Errors: those of files.Outcome, ctx's; those of changes for a watch.
func (t *transfer) fill() ([]byte, error) {
	if t.req.Op == schemas.FileWatch {
		return t.changes()
	}
	for len(t.rest) < schemas.MaxFilePiece {
		_, err := t.read(t.ctx)
		if errors.Is(err, io.EOF) {
			data := t.rest
			t.rest = nil
			if err := t.finish(); err != nil {
				return nil, err
			}
			return data, io.EOF
		}
		if err != nil {
			return nil, err
		}
	}
	data := t.rest[:schemas.MaxFilePiece:schemas.MaxFilePiece]
	t.rest = append(make([]byte, 0, 2*schemas.MaxFilePiece), t.rest[schemas.MaxFilePiece:]...)
	return data, nil
}

// changes returns what has changed, perhaps nothing, as lines of JSON. Errors: those of files.Outcome, ctx's, internal.
func (t *transfer) changes() ([]byte, error) {
	ctx, done := context.WithTimeout(t.ctx, watchPoll)
	defer done()
	for {
		if lines := t.lines(); len(lines) > 0 {
			return lines, nil
		}
		if len(t.rest) >= schemas.MaxFilePiece { // no record is so long
			return nil, tooMuch()
		}
		_, err := t.read(ctx)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil, cmp.Or(t.finish(), err)
		case t.ctx.Err() == nil:
			return nil, nil
		default:
			return nil, err
		}
	}
}

// lines takes whole records off rest, as lines of JSON: about a piece. The rest are for the next one.
func (t *transfer) lines() (lines []byte) {
	for len(lines) < schemas.MaxFilePiece {
		var entries []schemas.FileEntry
		if entries, t.rest = files.Entries(t.rest, 1); len(entries) == 0 {
			break
		}
		if line, err := json.Marshal(entries[0]); err == nil {
			lines = append(append(lines, line...), '\n')
		}
	}
	return lines
}

// report publishes the event of content that went in or out.
func (t *transfer) report(last *answers) {
	typ := schemas.TypeFileUploaded
	switch {
	case last.final != nil && last.final.Error != nil, t.req.Op == schemas.FileWatch:
		return
	case t.req.Op.Out():
		typ = schemas.TypeFileDownloaded
	case !t.req.Op.In():
		return
	}
	fs := t.files
	ctx, done := context.WithTimeout(context.WithoutCancel(t.ctx), fs.Timeouts.Accept)
	defer done()
	fs.Publisher.Publish(ctx, fs.Publisher.Event(typ, t.thread.About(t.req.Origin), schemas.FileTransfer{
		Op: t.req.Op, Path: t.req.Path, Transfer: t.key.transfer, Files: last.count, Bytes: last.size, DurationMS: work.Millis(time.Since(t.began)),
	}))
}

// repeat answers messages that are sent again, for a while.
func (t *transfer) repeat(last *answers) {
	over := time.NewTimer(linger)
	defer over.Stop()
	for {
		select {
		case p := <-t.pieces:
			if last.final != nil {
				p.answer(schemas.FileAnswer{Reply: last.final})
			} else {
				last.again(p)
			}
		case <-t.life.Done():
			return
		case <-over.C:
			return
		}
	}
}
