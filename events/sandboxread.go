package events

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// LastEnd reads the event that reports the end of a thread's newest session that has ended: [schemas.TypeSessionTerminated] or
// [schemas.TypeSessionExpired]. Its data is the last state of the session. Errors: not_found, unavailable.
func (r *Reader) LastEnd(ctx context.Context, tenant, thread string) (*schemas.Event, error) {
	var newest *storedMsg
	for _, typ := range []schemas.EventType{schemas.TypeSessionTerminated, schemas.TypeSessionExpired} {
		m, err := r.conn.leaderLast(ctx, r.conn.names.evt, r.conn.subjects.Event(tenant, thread, "", typ))
		if err != nil {
			return nil, wrap(err, "read the last ended session of thread "+thread)
		}
		if m != nil && (newest == nil || m.seq > newest.seq) {
			newest = m
		}
	}
	return decodeNewest(newest, "thread "+thread+" has no session that has ended")
}

// LastEnded reads the last state of a thread's newest session that has ended. Errors: not_found, unavailable.
func (r *Reader) LastEnded(ctx context.Context, tenant, thread string) (*schemas.Session, error) {
	ev, err := r.LastEnd(ctx, tenant, thread)
	if err != nil {
		return nil, err
	}
	var s schemas.Session
	return &s, ev.Decode(&s)
}

// LastSandbox reads the last event about a sandbox of a thread, whose data is a [schemas.SandboxInfo]. Errors: not_found, unavailable.
func (r *Reader) LastSandbox(ctx context.Context, tenant, thread string) (*schemas.Event, error) {
	m, err := r.conn.leaderLast(ctx, r.conn.names.evt, r.conn.subjects.SandboxEvents(tenant, thread))
	if err != nil {
		return nil, wrap(err, "read the last sandbox of thread "+thread)
	}
	return decodeNewest(m, "no event of a sandbox of thread "+thread+" is stored")
}

// decodeNewest decodes an event, nil for none, which is the error not_found with the text none.
func decodeNewest(m *storedMsg, none string) (*schemas.Event, error) {
	if m == nil {
		return nil, schemas.Errorf(schemas.CodeNotFound, "%s", none)
	}
	ev, err := schemas.DecodeEvent(m.data)
	if err != nil {
		return nil, err
	}
	ev.Seq = m.seq
	return ev, nil
}

// Polling of WatchThread: the first wait, and the longest one.
const (
	pollFirst = 200 * time.Millisecond
	pollMost  = 2 * time.Second
)

// WatchThread calls look at once and after each event of the thread that is of no process, until look returns true. Events may be missed:
// it calls look after 0.2 s as well, and then after 1.5 times as long each, up to 2 s. Errors: look's, ctx's.
func (r *Reader) WatchThread(ctx context.Context, tenant, thread string, look func() (done bool, err error)) error {
	feed, err := r.FollowEvents(Filter{Tenant: tenant, Thread: thread, Process: noProcess}, 0)
	if err != nil {
		feed = nil // the connection is down: poll alone
	} else {
		defer feed.Close()
		_ = r.conn.Flush(ctx) // what was stored before is for look to read
	}
	for every := pollFirst; ; every = min(every*3/2, pollMost) {
		if done, err := look(); done || err != nil {
			return err
		}
		wait, stop := context.WithTimeout(ctx, every)
		if feed == nil || feed.Next(wait, func(*schemas.Event) error { return nil }) != nil {
			<-wait.Done()
		}
		stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
