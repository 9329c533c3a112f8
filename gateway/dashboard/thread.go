package dashboard

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// threadHead is the top of each page about a thread.
type threadHead struct {
	Thread  string
	Tab     string
	Session *schemas.Session // nil for none
}

// threadView is the page of a thread.
type threadView struct {
	threadHead
	Processes []schemas.ProcessInfo
	Services  []schemas.Service
	Timeline  timeline
	More      *link
	Unknown   bool // nothing is stored of the thread
}

// head reads the top of a page. Errors: invalid_argument, unavailable.
func head(v *visit, tab string) (threadHead, error) {
	h := threadHead{Thread: v.r.PathValue("thread"), Tab: tab}
	s, err := v.client.SessionInfo(v.ctx(), h.Thread)
	if errors.Is(err, schemas.ErrNotFound) {
		err = nil
	}
	h.Session = s
	return h, err
}

func threadPage(v *visit) (*page, error) {
	limit, err := rows(v, processRows)
	if err != nil {
		return nil, err
	}
	t := &threadView{}
	if t.threadHead, err = head(v, "timeline"); err != nil {
		return nil, err
	}
	if t.Processes, err = v.client.Processes(v.ctx(), client.ProcessQuery{Thread: t.Thread, All: true, Limit: limit}); err != nil {
		return nil, err
	}
	if len(t.Processes) >= limit {
		t.More = moreLink(threadURL(t.Thread), limit)
	}
	if t.Services, err = v.client.Services(t.Thread).List(v.ctx()); err != nil {
		return nil, err
	}
	from := uint64(0)
	if n := len(t.Processes); n >= limit {
		from = t.Processes[n-1].Seq
	}
	events, err := lastEvents(v.ctx(), v.client, t.Thread, from)
	if err != nil {
		return nil, err
	}
	t.Timeline = newTimeline(events, t.Processes, time.Now())
	t.Unknown = t.Session == nil && len(events)+len(t.Processes)+len(t.Services) == 0
	p := &page{name: "thread", Title: t.Thread, Section: "overview", Live: liveURL(t.Thread, t.Processes), Data: t}
	if n := len(events); n > 0 {
		p.Live = liveURL(t.Thread, append(t.Processes[:len(t.Processes):len(t.Processes)], schemas.ProcessInfo{Seq: events[n-1].Seq}))
	}
	return p, nil
}

// terminalPage has a terminal in the sandbox of the thread.
func terminalPage(v *visit) (*page, error) {
	if !v.token.Allows(schemas.ScopeExec) {
		return nil, schemas.Errorf(schemas.CodePermissionDenied, "a terminal needs a token with scope exec: sign in with one")
	}
	h, err := head(v, "terminal")
	if err != nil {
		return nil, err
	}
	last, err := v.client.Processes(v.ctx(), client.ProcessQuery{Thread: h.Thread, All: true, Limit: 1})
	return &page{
		name: "terminal", Title: h.Thread + ": terminal", Section: "overview", styles: true, Live: liveURL(h.Thread, last), Data: h,
	}, err
}

// maxEvents is how many events a timeline is made from: the newest.
const maxEvents = 1000

// lastEvents returns the newest events of a thread.
func lastEvents(ctx context.Context, c *client.Client, thread string, from uint64) ([]*schemas.Event, error) {
	var last []*schemas.Event
	err := c.Events(ctx, client.EventQuery{Thread: thread, From: from}, func(ev *schemas.Event) error {
		if last = append(last, ev); len(last) == 2*maxEvents {
			last = append([]*schemas.Event(nil), last[maxEvents:]...)
		}
		return nil
	})
	return last[max(0, len(last)-maxEvents):], err
}
