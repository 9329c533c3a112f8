package gateway

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// logReader sends the output of a process to one reader of events, in order: from LOG while it is behind, and live from the feed that it
// shares with the other readers of the log.
type logReader struct {
	*call
	*output
	running *client.Process
	send    func(streamEvent) error
	tail    int    // lines to begin with; 0 for all
	next    uint64 // of LOG; 0 for the beginning
	at      [2]readStream
}

// readStream is how far a stream is read.
type readStream struct {
	end   int64 // the offset after the last byte
	epoch uint64
}

func streamIndex(s schemas.Stream) int {
	if s == schemas.Stderr {
		return 1
	}
	return 0
}

// query selects what the reader does not have.
func (l *logReader) query() client.LogQuery {
	return client.LogQuery{From: l.next, StdoutFrom: l.at[0].end, StderrFrom: l.at[1].end}
}

// run sends all output until the process has ended.
func (l *logReader) run(ctx context.Context) error {
	if l.tail > 0 { // each reader has another place to begin at
		return l.running.Logs(ctx, client.LogQuery{Tail: l.tail, Follow: true, Gap: l.gap}, l.takeChunk)
	}
	follow := func(begin bool) error { return l.follow(ctx, begin) }
	catchUp := func() (bool, error) {
		before := l.next
		err := l.catchUp(ctx)
		return l.next > before, err
	}
	if err := readOn(follow, catchUp); !errors.Is(err, errBehind) {
		return err
	}
	return schemas.Errorf(schemas.CodeUnavailable, "the log of process %s has lost output: go on with Last-Event-ID", l.output.process)
}

// readOn follows a feed, and catches up with what is stored while the reader is behind the feed. Before a feed has begun there may be
// nothing to catch up with; what a feed has dropped is stored. Errors: errBehind when it is not.
func readOn(follow func(begin bool) error, catchUp func() (more bool, err error)) error {
	err := follow(false)
	for begun := false; errors.Is(err, errBehind); begun = true {
		more, failed := catchUp()
		if failed != nil {
			return failed
		}
		if begun && !more {
			return err
		}
		err = follow(true)
	}
	return err
}

// catchUp sends what is stored.
func (l *logReader) catchUp(ctx context.Context) error {
	q := l.query()
	q.Gap = l.gap
	return l.running.Logs(ctx, q, l.takeChunk)
}

func (l *logReader) takeChunk(k schemas.Chunk) error { return l.take(&feedItem{chunk: k}) }

// follow sends what the feed has. Errors: errBehind.
func (l *logReader) follow(ctx context.Context, begin bool) error {
	key := feedKey{l.token.Tenant, l.output.thread, l.output.process}
	r, err := l.g.feeds.join(ctx, l.client, key, l, begin)
	if err != nil {
		return err
	}
	defer r.leave()
	for {
		item, err := r.next(ctx)
		if errors.Is(err, io.EOF) {
			return l.sendGaps(item.gaps)
		}
		if err == nil {
			err = l.take(&item)
		}
		if err != nil {
			return err
		}
	}
}

// take sends what the reader does not have of a chunk.
func (l *logReader) take(i *feedItem) error {
	if err := l.sendGaps(i.gaps); err != nil {
		return err
	}
	k, s := i.chunk, &l.at[streamIndex(i.chunk.Stream)]
	l.next = k.Seq + 1
	if s.epoch > 0 && k.Offset == 0 && k.Epoch > s.epoch { // a second run of the process comes whole
		s.end = 0
	}
	s.epoch = k.Epoch
	cut := max(0, s.end-k.Offset)
	if cut > 0 && cut >= int64(len(k.Data)) {
		return nil
	}
	s.end = k.End()
	if cut == 0 && l.same(&i.before) && len(i.event) > 0 {
		l.streams = i.after
		return l.send(streamEvent{encoded: i.event})
	}
	k.Data, k.Offset = k.Data[cut:], k.Offset+cut
	if e, ok := l.chunk(&k); ok {
		return l.send(e)
	}
	return nil
}

func (l *logReader) sendGaps(gaps []schemas.LogGap) error {
	for _, g := range gaps {
		if err := l.gap(g); err != nil {
			return err
		}
	}
	return nil
}

// gap reports output that is missing, once.
func (l *logReader) gap(g schemas.LogGap) error {
	s := &l.at[streamIndex(g.Stream)]
	if g.From = max(g.From, s.end); g.From >= g.To {
		return nil
	}
	s.end = g.To
	e := l.event("gap", time.Now(), nil)
	e.Gap = &g
	return l.send(streamEvent{data: e})
}
