package processor_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// history is what a cell has stored, as callers read it.
type history struct {
	t    testing.TB
	ctx  context.Context
	conn *connection // the callers'
}

func (h *history) must(err error) {
	h.t.Helper()
	testkit.Must(h.t, err)
}

// await waits for an event that fits.
func (h *history) await(fits func(*schemas.Event) bool) *schemas.Event {
	h.t.Helper()
	feed, err := h.conn.FollowEvents(events.Filter{}, 1)
	h.must(err)
	defer feed.Close()
	h.must(h.conn.Flush(h.ctx))
	found := errors.New("found")
	var got *schemas.Event
	look := func(ev *schemas.Event) error {
		if fits(ev) {
			got = ev
			return found
		}
		return nil
	}
	if err := feed.CatchUp(h.ctx, look); err != nil && !errors.Is(err, found) {
		h.t.Fatal(err)
	}
	for got == nil {
		if err := feed.Next(h.ctx, look); err != nil && !errors.Is(err, found) {
			h.t.Fatalf("no event fits: %v", err)
		}
	}
	return got
}

func (h *history) awaitType(process string, typ schemas.EventType) *schemas.Event {
	h.t.Helper()
	return h.await(func(ev *schemas.Event) bool { return ev.Process == process && ev.Type == typ })
}

// output waits until a process has printed a text, and returns all of its output so far.
func (h *history) output(process, text string) string {
	h.t.Helper()
	f, err := h.conn.FollowLog(schemas.ProcessRef{Tenant: schemas.DefaultTenant, Thread: "t", Process: process}, 0)
	h.must(err)
	defer f.Close()
	h.must(f.Flush(h.ctx))
	var b bytes.Buffer
	add := func(k schemas.Chunk) error {
		b.Write(k.Data)
		return nil
	}
	h.must(f.CatchUp(h.ctx, add))
	for !strings.Contains(b.String(), text) {
		h.must(f.Next(h.ctx, add))
	}
	return b.String()
}

// records are the types of a process's records, in order.
func (h *history) records(process string) []schemas.EventType {
	h.t.Helper()
	var out []schemas.EventType
	_, err := h.conn.ReadEvents(h.ctx, events.Filter{Process: process}, 1, func(ev *schemas.Event) error {
		if ev.Type.OfProcess() {
			out = append(out, ev.Type)
		}
		return nil
	})
	h.must(err)
	return out
}

// wantRecords fails the test unless a process's records are these.
func (h *history) wantRecords(process string, want ...schemas.EventType) {
	h.t.Helper()
	got := h.records(process)
	if len(got) > 0 && got[len(got)-1] == schemas.TypeProcessLost && len(got) == len(want)-1 {
		// A supervisor that its own process kills may end before it reports the start.
		want = slices.DeleteFunc(slices.Clone(want), func(t schemas.EventType) bool { return t == schemas.TypeProcessStarted })
	}
	if !slices.Equal(got, want) {
		h.t.Fatalf("records of %s are %v, want %v", process, got, want)
	}
}

// awaitEvent waits for an event of thread t.
func (h *history) awaitEvent(typ schemas.EventType) *schemas.Event {
	h.t.Helper()
	return h.await(func(ev *schemas.Event) bool { return ev.Thread == "t" && ev.Type == typ })
}

// eventTypes are the types of a thread's events that are no process records, in order.
func (h *history) eventTypes(thread string) (out []schemas.EventType) {
	h.t.Helper()
	_, err := h.conn.ReadEvents(h.ctx, events.Filter{Thread: thread}, 1, func(ev *schemas.Event) error {
		if !ev.Type.OfProcess() {
			out = append(out, ev.Type)
		}
		return nil
	})
	h.must(err)
	return out
}

func (h *history) wantEvents(thread string, want ...schemas.EventType) {
	h.t.Helper()
	if got := h.eventTypes(thread); !slices.Equal(got, want) {
		h.t.Fatalf("events are %v, want %v", got, want)
	}
}

func (h *history) session() *schemas.Session {
	h.t.Helper()
	s, _, err := h.conn.Session(h.ctx, schemas.DefaultTenant, "t")
	h.must(err)
	return s
}

// wantNoSession fails the test if a thread has a session.
func (h *history) wantNoSession(thread string) {
	h.t.Helper()
	_, _, err := h.conn.Session(h.ctx, schemas.DefaultTenant, thread)
	testkit.WantCode(h.t, err, schemas.CodeNotFound)
}

// allEvents are the stored events of thread t.
func (h *history) allEvents() (out []*schemas.Event) {
	h.t.Helper()
	_, err := h.conn.ReadEvents(h.ctx, events.Filter{Thread: "t"}, 1, func(ev *schemas.Event) error {
		out = append(out, ev)
		return nil
	})
	h.must(err)
	return out
}

// states are those that services of thread t have entered, by their events.
func (h *history) states() (out []schemas.ServiceState) {
	h.t.Helper()
	_, err := h.conn.ReadEvents(h.ctx, events.Filter{Thread: "t"}, 1, func(ev *schemas.Event) error {
		if class, state, _ := strings.Cut(string(ev.Type), "."); class == "service" {
			out = append(out, schemas.ServiceState(state))
		}
		return nil
	})
	h.must(err)
	return out
}

// awaitStates waits until the services of thread t have entered these states.
func (h *history) awaitStates(want ...schemas.ServiceState) {
	h.t.Helper()
	for {
		got := h.states()
		if len(got) >= len(want) {
			if !slices.Equal(got[:len(want)], want) {
				h.t.Fatalf("states are %v, want %v", got, want)
			}
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-h.ctx.Done():
			h.t.Fatalf("states are %v, want %v", got, want)
		}
	}
}

func (h *history) service(name string) *schemas.Service {
	h.t.Helper()
	list, err := h.conn.Caller.Services(h.ctx, schemas.DefaultTenant, "t")
	h.must(err)
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	h.t.Fatalf("there is no service %s among %v", name, list)
	return nil
}

// awaitKept waits until the list of kept workspaces fits.
func (h *history) awaitKept(what string, fits func([]schemas.Workspace) bool) []schemas.Workspace {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := h.conn.Kept(h.ctx, schemas.DefaultTenant)
		h.must(err)
		if fits(all) {
			return all
		}
		select {
		case <-tick.C:
		case <-h.ctx.Done():
			h.t.Fatalf("workspaces = %+v, want %s", all, what)
		}
	}
}
