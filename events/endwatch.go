package events

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// endCheck is how often a watch without events checks whether its process has ended.
const endCheck = time.Second

// endWatches are the watches of a connection. Those who wait for the end of one process share one.
type endWatches struct {
	mu     sync.Mutex
	shared map[Filter]*endWatch
}

// endWatch waits for the end of a process while it has users.
type endWatch struct {
	process Filter
	users   int                // the lock of endWatches guards it
	cancel  context.CancelFunc // ends the watch
	done    chan struct{}      // closed when the watch has ended
	ended   context.Context    // done when the process has ended
	last    *schemas.Event     // the record of the end, once ended is done
}

// WatchEnd follows the events of a process until its end, and reads its record each endCheck in case one was missed. It sends the
// result, and then calls found, until stop is called.
func (r *Reader) WatchEnd(ctx context.Context, ref schemas.ProcessRef, found func()) (end <-chan *schemas.Result, stop func()) {
	w := r.joinWatch(ctx, Filter{Tenant: ref.Tenant, Thread: ref.Thread, Process: ref.Process})
	ended, passed := make(chan *schemas.Result, 1), make(chan struct{})
	forget := context.AfterFunc(w.ended, func() {
		defer close(passed)
		result := new(schemas.Result) // each has its own
		if w.last.Decode(result) == nil {
			ended <- result
			found()
		}
	})
	return ended, sync.OnceFunc(func() {
		if !forget() {
			<-passed
		}
		r.leaveWatch(w)
	})
}

func (r *Reader) joinWatch(ctx context.Context, process Filter) *endWatch {
	all := &r.conn.ends
	all.mu.Lock()
	defer all.mu.Unlock()
	w := all.shared[process]
	if w == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives its first user
		ended, end := context.WithCancel(context.WithoutCancel(ctx))
		w = &endWatch{process: process, cancel: cancel, done: make(chan struct{}), ended: ended}
		all.shared[process] = w
		go func() {
			defer close(w.done)
			if w.last = r.awaitEnd(ctx, process); w.last != nil {
				all.mu.Lock()
				all.remove(w) // another run may begin with the same id
				all.mu.Unlock()
				end()
			}
		}()
	}
	w.users++
	return w
}

// leaveWatch ends a watch without users, and waits for that.
func (r *Reader) leaveWatch(w *endWatch) {
	all := &r.conn.ends
	all.mu.Lock()
	w.users--
	last := w.users == 0
	if last {
		all.remove(w)
	}
	all.mu.Unlock()
	if last {
		w.cancel()
		<-w.done
	}
}

// remove leaves a watch to those who have it. mu is held.
func (e *endWatches) remove(w *endWatch) {
	if e.shared[w.process] == w {
		delete(e.shared, w.process)
	}
}

// awaitEnd returns the record of the end of a process, or nil when ctx ends.
func (r *Reader) awaitEnd(ctx context.Context, process Filter) *schemas.Event {
	feed, err := r.FollowEvents(process, 0)
	if err != nil {
		feed = nil // the connection is down: read only the record
	} else {
		defer feed.Close()
		_ = feed.Flush(ctx) // an earlier end is in the record
	}
	for ctx.Err() == nil {
		last, err := r.Last(ctx, process.Tenant, process.Thread, process.Process)
		if err == nil && last.Type.Terminal() && last.Decode(new(schemas.Result)) == nil {
			return last
		}
		wait, stop := context.WithTimeout(ctx, endCheck)
		if feed == nil || feed.Next(wait, func(*schemas.Event) error { return nil }) != nil {
			<-wait.Done()
		}
		stop()
	}
	return nil
}
