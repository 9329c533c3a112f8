package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/client"
)

// tallyAge is how old the list may be that a tally counts from. What was begun through other gateways or NATS is counted that much later.
const tallyAge = time.Second

// tally counts what exists of a kind. It lists it when its last list is old, or has no room for another one; between lists it adds what is
// begun here.
type tally struct {
	mu    sync.Mutex
	known map[string]bool // what the last list had, and what was begun since
	going map[string]int  // what is being begun: a list need not have it yet
	read  time.Time
}

// admit admits one more, unless there are most of them without it. done is called when a list has it, or when it was not begun. Errors:
// limit_exceeded, those of list.
func (t *tally) admit(id string, most int64, now func() time.Time, list func() ([]string, error), over func(n int) error) (done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known[id] && (int64(len(t.known)) >= most || now().Sub(t.read) > tallyAge) {
		ids, err := list()
		if err != nil {
			return nil, err
		}
		t.known, t.read = make(map[string]bool, len(ids)), now()
		for _, found := range ids {
			t.known[found] = true
		}
		for begun := range t.going {
			t.known[begun] = true
		}
		if !t.known[id] && int64(len(t.known)) >= most {
			return nil, over(len(t.known))
		}
	}
	if t.known == nil {
		t.known = map[string]bool{}
	}
	if t.going == nil {
		t.going = map[string]int{}
	}
	t.known[id] = true
	t.going[id]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.going[id]--; t.going[id] == 0 {
			delete(t.going, id)
		}
	}), nil
}

// admission admits what a token begins, by what the client of its tenant lists.
type admission struct {
	*quota
	tenant string
	client *client.Client // without this admission
}

var _ client.Admission = (*admission)(nil)

// Process admits a process. Errors: limit_exceeded, unavailable.
func (a *admission) Process(ctx context.Context, _, process string) (done func(), err error) {
	most := a.limits.Processes
	if most == 0 {
		return func() {}, nil
	}
	return a.processes.admit(process, most, time.Now, func() ([]string, error) {
		list, err := a.client.Processes(ctx, client.ProcessQuery{})
		ids := make([]string, len(list))
		for i := range list {
			ids[i] = list[i].Process
		}
		return ids, err
	}, func(n int) error {
		return overLimit("max_processes", time.Second, "tenant %s runs %d processes, and the token may begin none beyond %d: stop one, or wait for its end",
			a.tenant, n, most)
	})
}

// Session admits the session of a thread. Errors: limit_exceeded, unavailable.
func (a *admission) Session(ctx context.Context, thread string) (done func(), err error) {
	most := a.limits.Sessions
	if most == 0 {
		return func() {}, nil
	}
	return a.sessions.admit(thread, most, time.Now, func() ([]string, error) {
		list, err := a.client.Sessions(ctx, client.SessionQuery{Limit: int(min(most, maxListed))})
		threads := make([]string, 0, len(list)+1)
		for i := range list {
			threads = append(threads, list[i].Thread)
		}
		if err == nil && int64(len(list)) >= most { // this thread may be one of the others
			if _, infoErr := a.client.SessionInfo(ctx, thread); infoErr == nil {
				threads = append(threads, thread)
			}
		}
		return threads, err
	}, func(n int) error {
		return overLimit("max_sessions", 5*time.Second, "tenant %s has %d sessions, and the token may begin none beyond %d: end one", a.tenant, n, most)
	})
}
