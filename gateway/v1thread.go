package gateway

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// threadAnswer is what exists of a thread now. Its records, output and messages may exist without any of it.
type threadAnswer struct {
	// Thread is its id, and Session its session.
	Thread  string           `json:"thread"`
	Session *schemas.Session `json:"session,omitempty"`
	// Workspaces are those on the disks of workers.
	Workspaces []schemas.Workspace `json:"workspaces,omitempty"`
	// Processes are those that run. A list of threads has neither these nor Services.
	Processes []schemas.ProcessInfo `json:"processes,omitempty"`
	Services  []schemas.Service     `json:"services,omitempty"`
}

// threadList is the threads of which something exists now.
type threadList struct {
	// Threads are sorted by their ids.
	Threads []threadAnswer `json:"threads"`
}

func v1Threads() []endpoint {
	return []endpoint{
		{
			route:   route{"GET /v1/threads", schemas.ScopeRead, v1ListThreads},
			summary: "The threads that have a session, or a workspace on a worker's disk",
			answer:  threadList{},
		},
		{
			route: route{"GET /v1/threads/{thread}", schemas.ScopeRead, v1GetThread}, answer: threadAnswer{},
			summary: "A thread: its session, its workspaces, the processes that run, its services",
		},
	}
}

func v1ListThreads(c *call) error {
	sessions, err := c.client.Sessions(c.r.Context(), client.SessionQuery{Limit: maxListed})
	if err != nil {
		return err
	}
	workspaces, err := c.client.Workspaces(c.r.Context())
	if err != nil {
		return err
	}
	found := map[string]*threadAnswer{}
	of := func(thread string) *threadAnswer {
		if found[thread] == nil {
			found[thread] = &threadAnswer{Thread: thread}
		}
		return found[thread]
	}
	for i := range sessions {
		of(sessions[i].Thread).Session = &sessions[i]
	}
	for _, w := range workspaces {
		t := of(w.Thread)
		t.Workspaces = append(t.Workspaces, w)
	}
	list := threadList{Threads: make([]threadAnswer, 0, len(found))}
	for _, t := range found {
		list.Threads = append(list.Threads, *t)
	}
	slices.SortFunc(list.Threads, func(a, b threadAnswer) int { return strings.Compare(a.Thread, b.Thread) })
	writeJSON(c.w, http.StatusOK, list)
	return nil
}

func v1GetThread(c *call) error {
	ctx, t := c.r.Context(), threadAnswer{Thread: c.thread()}
	var err error
	if t.Session, err = c.client.SessionInfo(ctx, t.Thread); err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	workspaces, err := c.client.Workspaces(ctx)
	if err != nil {
		return err
	}
	for _, w := range workspaces {
		if w.Thread == t.Thread {
			t.Workspaces = append(t.Workspaces, w)
		}
	}
	if t.Processes, err = c.client.Processes(ctx, client.ProcessQuery{Thread: t.Thread}); err != nil {
		return err
	}
	if t.Services, err = c.client.Services(t.Thread).List(ctx); err != nil {
		return err
	}
	for i := range t.Services {
		t.Services[i] = *t.Services[i].Public()
	}
	if t.Session == nil && len(t.Workspaces)+len(t.Processes)+len(t.Services) == 0 {
		return schemas.Errorf(schemas.CodeNotFound,
			"thread %s has no session, workspace, process or service: GET /v1/events shows what happened to it", t.Thread)
	}
	writeJSON(c.w, http.StatusOK, t)
	return nil
}
