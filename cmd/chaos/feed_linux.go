package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/history"
	"github.com/sluice-dev/sluice/schemas"
)

// feedTimeout is how long the followers may take to receive the last messages: an idle one asks the leader after half a minute at most.
const feedTimeout = 40 * time.Second

// feed is a follower of EVT or MSG that runs from the beginning to the end.
type feed struct {
	mu sync.Mutex
	history.Feed
}

// feeds are the followers of a cell.
type feeds struct {
	all  []*feed
	stop context.CancelFunc
	done sync.WaitGroup
}

// followFeeds starts followers of all events, of those of one thread and of a conversation, on each connection.
func (c *clients) followFeeds(ctx context.Context) *feeds {
	fs := &feeds{}
	ctx, fs.stop = context.WithCancel(ctx)
	for i, sdk := range c.sdk {
		thread, conversation := fmt.Sprint("t", i%threads), fmt.Sprint("m", i%conversations)
		fs.start(ctx, history.Feed{Name: fmt.Sprint("events by c", i)}, receiveEvents(sdk))
		fs.start(ctx, history.Feed{Name: fmt.Sprint("events of a thread by c", i), Thread: thread}, receiveEvents(sdk))
		fs.start(ctx, history.Feed{Name: fmt.Sprint("messages by c", i), Thread: conversation, Messages: true}, receiveMessages(sdk))
	}
	return fs
}

// receive follows from a sequence on, and passes each sequence to fn.
type receive func(ctx context.Context, thread string, from uint64, fn func(seq uint64)) error

func receiveEvents(sdk *client.Client) receive {
	return func(ctx context.Context, thread string, from uint64, fn func(uint64)) error {
		return sdk.Events(ctx, client.EventQuery{Thread: thread, From: from, Follow: true}, func(ev *schemas.Event) error {
			fn(ev.Seq)
			return nil
		})
	}
}

func receiveMessages(sdk *client.Client) receive {
	return func(ctx context.Context, thread string, from uint64, fn func(uint64)) error {
		return sdk.Messages(ctx, client.MessageQuery{Thread: thread, From: from, Follow: true}, func(m *schemas.Message) error {
			fn(m.Seq)
			return nil
		})
	}
}

// start follows until ctx ends. A follower that ends by an error goes on after the last message.
func (fs *feeds) start(ctx context.Context, of history.Feed, receive receive) {
	f := &feed{Feed: of}
	fs.all = append(fs.all, f)
	fs.done.Go(func() {
		for last := uint64(0); ctx.Err() == nil; {
			_ = receive(ctx, of.Thread, last+1, func(seq uint64) {
				last = seq
				f.mu.Lock()
				defer f.mu.Unlock()
				f.Seqs = append(f.Seqs, seq)
			})
			if pause(ctx, 200*time.Millisecond) {
				f.mu.Lock()
				f.Restarts++
				f.mu.Unlock()
			}
		}
	})
}

func (f *feed) taken() history.Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.Feed
	of.Seqs = append([]uint64(nil), f.Seqs...)
	return of
}

// finish ends the followers when they have everything of the history, or after feedTimeout, and adds what they received to it.
func (fs *feeds) finish(ctx context.Context, h *history.History) {
	wait, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	for _, f := range fs.all {
		of := f.taken()
		for h.Missing(&of) > 0 && pause(wait, 200*time.Millisecond) {
			of = f.taken()
		}
	}
	fs.stop()
	fs.done.Wait()
	for _, f := range fs.all {
		h.Feeds = append(h.Feeds, f.taken())
	}
}
