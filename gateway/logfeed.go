package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// How much of a log that is followed waits in memory, in bytes with its events: what its readers need up to feedMost, and feedKeep for
// readers that join. A reader that is further behind reads what is stored.
const (
	feedMost = 1 << 20
	feedKeep = 64 << 10
)

// errBehind reports that a feed no longer has what its reader needs next.
var errBehind = errors.New("the feed does not have the next chunk")

type feedKey struct{ tenant, thread, process string }

// logFeeds are the logs that readers of a gateway follow now.
type logFeeds struct {
	mu   sync.Mutex
	open map[feedKey]*logFeed
}

// logFeed follows the output of a process once for all of its readers, and makes each event once. It waits for none of them.
type logFeed struct {
	key     feedKey
	begun   [2]int64 // the offsets in the two streams at which it began: it skips what was before
	cancel  context.CancelFunc
	done    chan struct{} // closed when it has ended
	readers int           // guarded by the mu of logFeeds

	// Of the goroutine that follows.
	events *output
	gaps   []schemas.LogGap // before the next item

	mu    sync.Mutex
	items []feedItem
	first uint64 // the number of items[0]
	from  uint64 // items has what LOG has at or after this sequence
	bytes int
	at    map[*feedReader]uint64 // the number of the next item of each reader
	grown chan struct{}          // closed with the next item, and at the end
	ended bool
	rest  []schemas.LogGap // after the last item, once it has ended
	err   error
}

// feedItem is a chunk, and its event for a reader that has all before it.
type feedItem struct {
	chunk         schemas.Chunk
	gaps          []schemas.LogGap // before the chunk
	before, after [2]outputStream
	event         []byte // empty for none
}

func (i *feedItem) size() int { return len(i.chunk.Data) + len(i.event) }

// feedReader is a reader of a feed. It is for one goroutine.
type feedReader struct {
	feeds *logFeeds
	feed  *logFeed
}

// join joins the feed of a log. Without one that has all that the reader lacks, it begins one where the reader is if begin is set: where
// that is, is the word of a client. Errors: errBehind.
func (fs *logFeeds) join(ctx context.Context, c *client.Client, key feedKey, l *logReader, begin bool) (*feedReader, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.open[key]
	if f != nil && !f.covers(l) {
		f = nil
	}
	if f == nil && !begin {
		return nil, errBehind
	}
	if f == nil {
		f = &logFeed{key: key, begun: [2]int64{l.at[0].end, l.at[1].end}, done: make(chan struct{}), events: l.output.clone(), from: l.next,
			at: make(map[*feedReader]uint64), grown: make(chan struct{})}
		ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx)) // it outlives its first reader
		fs.open[key] = f
		q := l.query()
		q.Thread, q.Process, q.Follow, q.Gap = key.thread, key.process, true, func(g schemas.LogGap) error {
			f.gaps = append(f.gaps, g)
			return nil
		}
		go func() {
			defer close(f.done)
			err := c.Logs(ctx, q, f.add)
			fs.forget(f) // first: no reader joins a feed that has ended
			f.end(err)
		}()
	}
	r := &feedReader{feeds: fs, feed: f}
	if !f.admit(r, l.next) {
		return nil, errBehind
	}
	f.readers++
	return r, nil
}

// covers reports whether the feed skips nothing that the reader lacks.
func (f *logFeed) covers(l *logReader) bool {
	return l.at[0].end >= f.begun[0] && l.at[1].end >= f.begun[1]
}

// forget leaves a feed to those who read it.
func (fs *logFeeds) forget(f *logFeed) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.open[f.key] == f {
		delete(fs.open, f.key)
	}
}

// leave ends a feed without readers, and waits for that.
func (r *feedReader) leave() {
	r.feeds.mu.Lock()
	r.feed.readers--
	last := r.feed.readers == 0
	if last && r.feeds.open[r.feed.key] == r.feed {
		delete(r.feeds.open, r.feed.key)
	}
	r.feeds.mu.Unlock()
	r.feed.mu.Lock()
	delete(r.feed.at, r)
	r.feed.mu.Unlock()
	if last {
		r.feed.cancel()
		<-r.feed.done
	}
}

// admit adds a reader at its next sequence of LOG, and reports false when that is dropped already.
func (f *logFeed) admit(r *feedReader, next uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next < f.from {
		return false
	}
	i := 0
	for i < len(f.items) && f.items[i].chunk.Seq < next {
		i++
	}
	f.at[r] = f.first + uint64(i) //nolint:gosec // an index
	return true
}

// add adds a chunk, and drops items that no reader needs, or that are too many.
func (f *logFeed) add(k schemas.Chunk) error {
	k.Data = bytes.Clone(k.Data)
	item := feedItem{chunk: k, gaps: f.gaps, before: f.events.streams}
	f.gaps = nil
	if e, ok := f.events.chunk(&k); ok {
		item.event = encodeEvent(e)
	}
	item.after = f.events.streams
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items, f.bytes = append(f.items, item), f.bytes+item.size()
	slowest := f.first + uint64(len(f.items))
	for _, at := range f.at {
		slowest = min(slowest, at)
	}
	for len(f.items) > 1 && (f.bytes > feedMost || f.bytes > feedKeep && f.first < slowest) {
		f.from = f.items[0].chunk.Seq + 1
		f.bytes -= f.items[0].size()
		f.items[0] = feedItem{}
		f.items, f.first = f.items[1:], f.first+1
	}
	f.wake()
	return nil
}

// end notes the end of the log, or the error that ended the feed.
func (f *logFeed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.rest, f.err = true, f.gaps, err
	f.wake()
}

// wake wakes the readers. mu is held.
func (f *logFeed) wake() {
	close(f.grown)
	f.grown = make(chan struct{})
}

// next waits for the reader's next item. At the end of the log it returns io.EOF, with the gaps after the last chunk. Errors: errBehind,
// those of [client.Client.Logs], ctx's.
func (r *feedReader) next(ctx context.Context) (feedItem, error) {
	for {
		item, grown, err := r.poll()
		if grown == nil || err != nil {
			return item, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return feedItem{}, ctx.Err()
		}
	}
}

// poll returns the next item, or a channel that is closed when there is more.
func (r *feedReader) poll() (item feedItem, grown <-chan struct{}, err error) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.at[r]
	switch {
	case at < f.first:
		return item, nil, errBehind
	case at < f.first+uint64(len(f.items)):
		f.at[r]++
		return f.items[at-f.first], nil, nil
	case !f.ended:
		return item, f.grown, nil
	case f.err != nil:
		return item, nil, f.err
	}
	return feedItem{gaps: f.rest}, nil, io.EOF
}
