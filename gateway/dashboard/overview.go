package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// Sizes of lists. What "show more" asks for is at most maxRows.
const (
	recentEnds  = 200 // how many ended processes the overview counts
	shortList   = 8
	threadRows  = 25
	processRows = 50
	maxRows     = 1000
)

// overview is what runs and what failed.
type overview struct {
	Status          *schemas.Status
	Running, Failed []schemas.ProcessInfo // at most shortList
	Counts          struct{ Running, Failed, Ended, Waiting int }
	Since           time.Time // of the first of the ended ones that are counted
	Threads         []threadRow
	MoreThreads     *link
	Workers         int // that are alive
	Templates       []*schemas.Template
	Warnings        []string
}

// threadRow is a thread in a table.
type threadRow struct {
	Thread  string
	Session *schemas.Session
	Last    *schemas.ProcessInfo // the command that runs, or the last one
	Running int
	Active  time.Time
	Owed    bool
}

// overviewPage is the first page.
func overviewPage(v *visit) (*page, error) {
	o := &overview{}
	limit, err := rows(v, threadRows)
	if err != nil {
		return nil, err
	}
	o.Status, err = v.client.Status(v.ctx())
	if errors.Is(err, schemas.ErrNotFound) {
		return &page{name: "overview", Title: "Overview", Section: "overview", Data: &overview{Status: &schemas.Status{}}}, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := v.client.Processes(v.ctx(), client.ProcessQuery{All: true, Limit: recentEnds})
	if err != nil {
		return nil, err
	}
	o.count(all)
	if err := o.readThreads(v.ctx(), v.client, all, limit); err != nil {
		return nil, err
	}
	if o.Templates, err = v.client.Templates(v.ctx()); err != nil {
		return nil, err
	}
	for i := range o.Status.Workers {
		if o.Status.Workers[i].Alive {
			o.Workers++
		}
	}
	o.warn()
	return &page{name: "overview", Title: "Overview", Section: "overview", Live: liveURL("", all), Data: o}, nil
}

// count sorts processes by how they are.
func (o *overview) count(all []schemas.ProcessInfo) {
	for _, p := range all {
		switch {
		case !p.Status.Ended():
			o.Counts.Running++
			if p.Status == schemas.StatusStarting {
				o.Counts.Waiting++
			}
			if len(o.Running) < shortList {
				o.Running = append(o.Running, p)
			}
		default:
			o.Counts.Ended++
			o.Since = p.Ended
			if failed(p) {
				o.Counts.Failed++
				if len(o.Failed) < shortList {
					o.Failed = append(o.Failed, p)
				}
			}
		}
	}
}

// warn notes what keeps commands from being run or kept.
func (o *overview) warn() {
	if o.Workers == 0 {
		o.Warnings = append(o.Warnings, "No worker runs: commands wait until one does. Start one with `sluice up` or `sluice worker`.")
	}
	for _, s := range o.Status.Streams {
		if s.RefuseBytes > 0 && s.Bytes >= uint64(s.RefuseBytes) {
			o.Warnings = append(o.Warnings, fmt.Sprintf("Stream %s is full: workers accept no new commands until older events expire.", s.Name))
		}
	}
	if n := len(o.Status.Owed); n > 0 {
		o.Warnings = append(o.Warnings, fmt.Sprintf("%d workspaces could not be stored; their workers try again. The first one, of thread %s: %s", n,
			o.Status.Owed[0].Thread, shorten(200, errorText(o.Status.Owed[0].Error))))
	}
}

func errorText(e *schemas.Error) string {
	if e == nil {
		return "its worker died before it could"
	}
	return e.Error()
}

// readThreads lists the threads that have a session, a workspace or one of these processes, the last active one first.
func (o *overview) readThreads(ctx context.Context, c *client.Client, all []schemas.ProcessInfo, limit int) error {
	sessions, err := c.Sessions(ctx, client.SessionQuery{Limit: 10 * maxRows})
	if err != nil {
		return err
	}
	workspaces, err := c.Workspaces(ctx)
	if err != nil {
		return err
	}
	found := map[string]*threadRow{}
	of := func(thread string, active time.Time) *threadRow {
		t := found[thread]
		if t == nil {
			t = &threadRow{Thread: thread}
			found[thread] = t
		}
		if active.After(t.Active) {
			t.Active = active
		}
		return t
	}
	for i := range sessions {
		of(sessions[i].Thread, sessions[i].LastActivity).Session = &sessions[i]
	}
	for i := range workspaces {
		t := of(workspaces[i].Thread, workspaces[i].Ended)
		t.Owed = t.Owed || workspaces[i].Owed
	}
	for i, p := range all {
		t := of(p.Thread, cmp.Or(p.Ended, p.Started))
		if t.Last == nil {
			t.Last = &all[i]
		}
		if !p.Status.Ended() {
			t.Running++
		}
	}
	for _, t := range found {
		o.Threads = append(o.Threads, *t)
	}
	slices.SortFunc(o.Threads, func(a, b threadRow) int {
		return cmp.Or(cmp.Compare(min(b.Running, 1), min(a.Running, 1)), b.Active.Compare(a.Active), cmp.Compare(a.Thread, b.Thread))
	})
	if len(o.Threads) > limit {
		o.Threads = o.Threads[:limit]
		o.MoreThreads = moreLink(Path, limit)
	}
	for i := range o.Threads {
		t := &o.Threads[i]
		if t.Last != nil {
			continue
		}
		last, err := c.Processes(ctx, client.ProcessQuery{Thread: t.Thread, All: true, Limit: 1})
		if err != nil {
			return err
		}
		if len(last) > 0 {
			t.Last = &last[0]
		}
	}
	return nil
}

// rows is how many rows of its list a page shows. Errors: invalid_argument.
func rows(v *visit, usual int) (int, error) {
	text := v.r.URL.Query().Get("rows")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxRows {
		return 0, schemas.Errorf(schemas.CodeInvalidArgument, "rows: %.20q is no number from 1 to %d", text, maxRows)
	}
	return n, nil
}

// moreLink shows four times as much; nil where that is more than a page has.
func moreLink(path string, now int) *link {
	if now >= maxRows {
		return nil
	}
	return &link{"Show more", path + "?rows=" + strconv.Itoa(min(4*now, maxRows))}
}

// liveURL is the stream of events after the last end of a process that a page shows.
func liveURL(thread string, shown []schemas.ProcessInfo) string {
	last := uint64(0)
	for _, p := range shown {
		last = max(last, p.Seq)
	}
	q := url.Values{"from": {strconv.FormatUint(last+1, 10)}}
	if thread != "" {
		q.Set("thread", thread)
	}
	return apiPath + "events?" + q.Encode()
}

// findThread leads to the page of the thread in a form.
func findThread(v *visit) (*page, error) {
	thread := v.r.URL.Query().Get("thread")
	if err := schemas.CheckID("thread", thread); err != nil {
		return nil, err
	}
	return &page{moved: threadURL(thread)}, nil
}

func threadURL(thread string) string { return Path + "threads/" + url.PathEscape(thread) }

// processList is a page of processes.
type processList struct {
	Processes []schemas.ProcessInfo
	Failed    bool // only those that failed
	Next      *link
}

// processesPage lists processes, the newest first.
func processesPage(v *visit) (*page, error) {
	q := v.r.URL.Query()
	l := &processList{Failed: q.Get("only") == "failed"}
	var before uint64
	var err error
	if text := q.Get("before"); text != "" {
		if before, err = strconv.ParseUint(text, 10, 63); err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "before: %.30q is no sequence", text)
		}
	}
	all, err := v.client.Processes(v.ctx(), client.ProcessQuery{All: true, Limit: recentEnds, Before: before})
	if err != nil {
		return nil, err
	}
	ended := 0
	for _, p := range all {
		if p.Seq > 0 {
			ended++
		}
		if !l.Failed || failed(p) {
			l.Processes = append(l.Processes, p)
		}
	}
	l.Processes = l.Processes[:min(len(l.Processes), maxRows)]
	if ended == recentEnds {
		further := url.Values{"before": {strconv.FormatUint(all[len(all)-1].Seq, 10)}}
		if l.Failed {
			further.Set("only", "failed")
		}
		l.Next = &link{"Older ones", Path + "processes?" + further.Encode()}
	}
	p := &page{name: "processes", Title: "Processes", Section: "processes", Data: l}
	if before == 0 {
		p.Live = liveURL("", all)
	}
	return p, nil
}
