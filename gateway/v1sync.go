package gateway

import (
	"net/http"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// restoreBody is a version to go back to.
type restoreBody struct {
	// At is the id of a version, or a time (RFC 3339) for the newest up to then. Required.
	At string `json:"at"`
	// Path is the file or folder to restore, relative to the workspace. Default: all of it.
	Path string `json:"path,omitempty"`
}

// versionList is the stored versions of a workspace, the newest first.
type versionList struct {
	// Versions are the versions.
	Versions []schemas.WorkspaceVersion `json:"versions"`
}

// workspaceList is the workspaces on the disks of workers.
type workspaceList struct {
	// Workspaces are sorted by thread and worker.
	Workspaces []schemas.Workspace `json:"workspaces"`
}

func v1Sync() []endpoint {
	const thread = "/v1/threads/{thread}"
	return []endpoint{
		{
			route: route{"POST " + thread + "/push", schemas.ScopeExec, v1Push}, answer: schemas.SyncReport{},
			summary: "Store the workspace of a thread's session as a new version",
		},
		{
			route: route{"POST " + thread + "/restore", schemas.ScopeExec, v1Restore}, body: restoreBody{}, answer: schemas.SyncReport{},
			summary: "Bring the workspace back to a version, after what is there was pushed",
		},
		{
			route: route{"GET " + thread + "/versions", schemas.ScopeRead, v1Versions}, answer: versionList{},
			summary: "The stored versions of the workspace, the newest first",
		},
		{
			route: route{"GET " + thread + "/diff", schemas.ScopeRead, v1Diff}, answer: schemas.WorkspaceDiff{},
			summary: "What the workspace has changed since a version was stored",
			query: []string{
				"path: compare this file line by line; the files that differ from the current version are listed unless set",
				"at: the version to compare the file with, by id or time (RFC 3339); the current one unless set",
			},
		},
		{route: route{"GET /v1/workspaces", schemas.ScopeRead, v1Workspaces}, summary: "The workspaces on the disks of workers",
			answer: workspaceList{}},
		{
			route:   route{"DELETE " + thread + "/workspace", schemas.ScopeExec, v1RemoveWorkspace},
			summary: "Remove the workspace of a thread without a session; pushed versions stay", status: http.StatusNoContent,
			query: []string{"worker: on the disk of this worker; of all unless set", "unpushed: true also removes one whose push is owed"},
		},
	}
}

// report answers with what a sync did, also when it failed on the way.
func (c *call) report(r *schemas.SyncReport, err error) error {
	if err != nil && r != nil {
		return &refusal{err: err, fields: map[string]any{"report": r}}
	}
	return give(c, http.StatusOK, r, err)
}

func v1Push(c *call) error {
	s, err := c.client.Session(c.r.Context(), c.thread())
	if err != nil {
		return err
	}
	return c.report(s.Push(c.r.Context()))
}

func v1Restore(c *call) error {
	var b restoreBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	s, err := c.client.Session(c.r.Context(), c.thread())
	if err != nil {
		return err
	}
	return c.report(s.Restore(c.r.Context(), b.At, b.Path))
}

func v1Versions(c *call) error {
	s, err := c.client.Session(c.r.Context(), c.thread())
	if err != nil {
		return err
	}
	list, err := s.Versions(c.r.Context())
	return give(c, http.StatusOK, versionList{append([]schemas.WorkspaceVersion{}, list...)}, err)
}

func v1Diff(c *call) error {
	s, err := c.client.Session(c.r.Context(), c.thread())
	if err != nil {
		return err
	}
	path, at := c.query("path"), c.query("at")
	if path == "" && at == "" {
		d, err := s.Changes(c.r.Context())
		return give(c, http.StatusOK, d, err)
	}
	d, err := s.Diff(c.r.Context(), path, at)
	return give(c, http.StatusOK, d, err)
}

func v1Workspaces(c *call) error {
	list, err := c.client.Workspaces(c.r.Context())
	return give(c, http.StatusOK, workspaceList{list}, err)
}

func v1RemoveWorkspace(c *call) error {
	unpushed, err := c.flag("unpushed")
	if err != nil {
		return err
	}
	return c.done(c.client.RemoveWorkspace(c.r.Context(), c.thread(), c.query("worker"), unpushed))
}

// serviceBody is a service to start.
type serviceBody struct {
	// Name is the service's name in its thread. Required.
	Name string `json:"name"`
	// Provider, Image and Template are those of the session that the thread gets when it has none. Default: the worker's choice.
	Provider string `json:"provider,omitempty"`
	Image    string `json:"image,omitempty"`
	Template string `json:"template,omitempty"`
	schemas.ServiceSpec
}

// serviceList is the services of a thread, by name.
type serviceList struct {
	// Services are without the values of their environments.
	Services []schemas.Service `json:"services"`
}

// serviceLog is the last lines that a service printed.
type serviceLog struct {
	// Lines begin with the time of their storing. The oldest is first.
	Lines []string `json:"lines"`
}

func v1Services() []endpoint {
	const all, one = "/v1/threads/{thread}/services", "/v1/threads/{thread}/services/{name}"
	return []endpoint{
		{route: route{"GET " + all, schemas.ScopeRead, v1ListServices}, summary: "The services of a thread", answer: serviceList{}},
		{
			route: route{"POST " + all, schemas.ScopeExec, v1StartService}, body: serviceBody{}, answer: schemas.Service{},
			summary: "Start a service, and wait until it is healthy; when the request ends before, the start goes on", status: http.StatusCreated,
		},
		{route: route{"GET " + one, schemas.ScopeRead, v1GetService}, summary: "A service", answer: schemas.Service{}},
		{route: route{"DELETE " + one, schemas.ScopeExec, v1StopService}, summary: "Stop a service; the answer is its last state",
			answer: schemas.Service{}},
		{
			route: route{"GET " + one + "/logs", schemas.ScopeRead, v1ServiceLogs}, summary: "What a service printed, over its restarts",
			answer: serviceLog{}, query: []string{"tail: at most so many lines, 100 unless set"},
		},
	}
}

// service answers with a service as its readers may see it.
func (c *call) service(status int, s *schemas.Service, err error) error {
	if err != nil {
		return err
	}
	return give(c, status, s.Public(), nil)
}

func v1ListServices(c *call) error {
	list, err := c.client.Services(c.thread()).List(c.r.Context())
	for i := range list {
		list[i] = *list[i].Public()
	}
	return give(c, http.StatusOK, serviceList{append([]schemas.Service{}, list...)}, err)
}

func v1StartService(c *call) error {
	var b serviceBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	s, err := c.client.Services(c.thread()).Start(c.r.Context(), client.ServiceRequest{
		Name: b.Name, Provider: b.Provider, Image: b.Image, Template: b.Template, ServiceSpec: b.ServiceSpec,
	})
	return c.service(http.StatusCreated, s, err)
}

func v1GetService(c *call) error {
	s, err := c.client.Services(c.thread()).Get(c.r.Context(), c.r.PathValue("name"))
	return c.service(http.StatusOK, s, err)
}

func v1StopService(c *call) error {
	s, err := c.client.Services(c.thread()).Stop(c.r.Context(), c.r.PathValue("name"))
	return c.service(http.StatusOK, s, err)
}

func v1ServiceLogs(c *call) error {
	tail, err := c.queryNumber("tail", 100, 1, client.MaxServiceLines)
	if err != nil {
		return err
	}
	lines, err := c.client.Services(c.thread()).Logs(c.r.Context(), c.r.PathValue("name"), tail)
	return give(c, http.StatusOK, serviceLog{append([]string{}, lines...)}, err)
}
