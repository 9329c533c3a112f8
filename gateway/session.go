package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// The session API: sessions by the thread, whose commands are lines of a shell. Its requests, responses and statuses are those that its
// clients were written for.

// documentsTemplate is the template of its sessions: small files, and a policy of commands.
const documentsTemplate = "documents"

func sessionRoutes() []route {
	return []route{
		{"POST /create_session", schemas.ScopeExec, createSession},
		{"GET /get_session", schemas.ScopeRead, getSession},
		{"POST /execute", schemas.ScopeExec, execute},
		{"POST /upload_file", schemas.ScopeExec, uploadFile},
		{"POST /download_file", schemas.ScopeRead, downloadFile},
		{"GET /list_files", schemas.ScopeRead, listFiles},
		{"POST /cleanup", schemas.ScopeExec, cleanup},
	}
}

// sessionAnswer describes a session.
type sessionAnswer struct {
	SessionID    string     `json:"session_id"`
	ThreadID     string     `json:"thread_id"`
	Status       string     `json:"status"`
	WorkspaceDir string     `json:"workspace_dir"`
	User         string     `json:"user,omitempty"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
	CreatedAt    *time.Time `json:"created_at,omitempty"`
	LastActivity *time.Time `json:"last_activity,omitempty"`
	FilesCount   *int       `json:"files_count,omitempty"`
}

func answerOf(s *schemas.Session, status string) *sessionAnswer {
	a := &sessionAnswer{SessionID: sessionID(s), ThreadID: s.Thread, Status: status, WorkspaceDir: workspaceDir(s), User: s.User}
	if !s.Expires.IsZero() {
		a.ExpiresAt = &s.Expires
	}
	return a
}

// known adds what only a session has that was there before.
func (a *sessionAnswer) known(s *schemas.Session) *sessionAnswer {
	a.CreatedAt, a.LastActivity = &s.Created, &s.LastActivity
	return a
}

// sessionID is the id of a session in this API. It has the thread, so that any gateway finds the session.
func sessionID(s *schemas.Session) string { return s.Thread + "." + s.ID }

// splitSession returns the thread and the id of a session. Errors: not_found.
func splitSession(session string) (thread, id string, err error) {
	if session == "" {
		return "", "", missing("session_id")
	}
	thread, id, ok := strings.Cut(session, ".")
	if !ok || !schemas.ValidID(thread) || !schemas.ValidID(id) {
		return "", "", &refusal{
			err: schemas.Errorf(schemas.CodeNotFound, "no session has this id"), text: "Session not found",
			fields: map[string]any{"session_id": session},
		}
	}
	return thread, id, nil
}

func missing(field string) error {
	return schemas.Errorf(schemas.CodeInvalidArgument, "%s: missing", field).With("path", field)
}

// sessionError is the documented error where err is that of a session that has ended; any other error stays as it is.
func sessionError(session string, err error) error {
	if !errors.Is(err, schemas.ErrSessionExpired) {
		return err
	}
	return &refusal{err: err, text: "Session expired", fields: map[string]any{"session_id": session}}
}

// workspaceDir is the workspace's folder as processes of the session see it.
func workspaceDir(s *schemas.Session) string {
	if s.Provider == schemas.ProviderLocal {
		return s.Workspace
	}
	return "/workspace"
}

// open returns a session by its id in this API. Errors: not_found and session_expired as documented, unavailable.
func (c *call) open(session string) (*client.Session, *schemas.Session, error) {
	thread, id, err := splitSession(session)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.client.Session(c.r.Context(), thread)
	if errors.Is(err, schemas.ErrNotFound) || (err == nil && s.ID() != id) {
		err = schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s has ended", id, thread)
	}
	var info *schemas.Session
	if err == nil {
		info, err = s.Info(c.r.Context())
	}
	return s, info, sessionError(session, err)
}

func createSession(c *call) error {
	var req struct {
		UserID         string `json:"user_id"`
		ThreadID       string `json:"thread_id"`
		TimeoutMinutes int64  `json:"timeout_minutes"`
	}
	if err := c.readJSON(&req); err != nil {
		return err
	}
	switch {
	case req.ThreadID == "":
		return missing("thread_id")
	case req.UserID == "":
		return missing("user_id")
	case req.TimeoutMinutes < 0 || req.TimeoutMinutes > schemas.MaxTimeoutMS/time.Minute.Milliseconds():
		return schemas.Errorf(schemas.CodeInvalidArgument, "timeout_minutes: %d is not from 1 to %d", req.TimeoutMinutes,
			schemas.MaxTimeoutMS/time.Minute.Milliseconds()).With("path", "timeout_minutes")
	}
	ctx := c.r.Context()
	s, created, err := c.client.CreateSession(ctx, client.SessionRequest{
		Thread: req.ThreadID, User: req.UserID, Template: documentsTemplate, Start: true,
		IdleTimeout: time.Duration(req.TimeoutMinutes) * time.Minute,
	})
	var info *schemas.Session
	switch {
	case errors.Is(err, schemas.ErrConflict): // a session of another template
		info, err = c.client.SessionInfo(ctx, req.ThreadID)
	case err == nil:
		info, err = s.Info(ctx)
	}
	switch {
	case err != nil:
		return err
	case created:
		writeJSON(c.w, http.StatusCreated, answerOf(info, "created"))
	default:
		writeJSON(c.w, http.StatusConflict, answerOf(info, "existing").known(info))
	}
	return nil
}

func getSession(c *call) error {
	thread := c.r.URL.Query().Get("thread_id")
	if thread == "" {
		return missing("thread_id")
	}
	s, err := c.client.Session(c.r.Context(), thread)
	var info *schemas.Session
	if err == nil {
		info, err = s.Info(c.r.Context())
	}
	if errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrSessionExpired) {
		return &refusal{err: err, text: "Session not found", fields: map[string]any{"thread_id": thread}}
	}
	if err != nil {
		return err
	}
	a := answerOf(info, "active").known(info)
	found, err := listWorkspace(c.r.Context(), s.Files())
	if err != nil {
		return err
	}
	n := len(found.files)
	a.FilesCount = &n
	writeJSON(c.w, http.StatusOK, a)
	return nil
}

// Bounds of a command of the session API.
const (
	defaultExecute = 30 * time.Second
	// executeStart is how long a command may wait until it runs: for a worker, and for its sandbox.
	executeStart = 2 * time.Minute
)

func execute(c *call) error {
	var req struct {
		SessionID string `json:"session_id"`
		Command   string `json:"command"`
		Timeout   *int64 `json:"timeout"`
	}
	if err := c.readJSON(&req); err != nil {
		return err
	}
	if req.Command == "" {
		return missing("command")
	}
	timeout := defaultExecute
	if req.Timeout != nil {
		if *req.Timeout < 1 || *req.Timeout > schemas.MaxTimeoutMS/1000 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "timeout: %d is not from 1 to %d seconds", *req.Timeout,
				schemas.MaxTimeoutMS/1000).With("path", "timeout")
		}
		timeout = time.Duration(*req.Timeout) * time.Second
	}
	thread, id, err := splitSession(req.SessionID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), timeout+executeStart)
	defer cancel()
	r, err := c.client.Exec(ctx, client.Request{
		Thread: thread, Session: id, Command: "sh", Args: []string{"-c", req.Command}, Timeout: timeout, Encoding: client.EncodingText,
	})
	if err != nil {
		return executeError(req.SessionID, req.Command, err)
	}
	writeJSON(c.w, http.StatusOK, executeAnswer{
		ExitCode: r.ExitCode, Stdout: r.Stdout, Stderr: r.Stderr, ExecutionTimeMS: r.DurationMS,
		StdoutTruncated: r.StdoutTruncated, StderrTruncated: r.StderrTruncated,
	})
	return nil
}

type executeAnswer struct {
	ExitCode        int     `json:"exit_code"`
	Stdout          string  `json:"stdout"`
	Stderr          string  `json:"stderr"`
	ExecutionTimeMS float64 `json:"execution_time_ms"`
	StdoutTruncated bool    `json:"stdout_truncated,omitempty"`
	StderrTruncated bool    `json:"stderr_truncated,omitempty"`
}

// executeError is the documented error of a command that did not run.
func executeError(session, command string, err error) error {
	e := schemas.AsError(err)
	if e.Code != schemas.CodePolicyDenied {
		return sessionError(session, err)
	}
	return &refusal{err: err, fields: map[string]any{
		"command": command, "forbidden_pattern": cmp.Or(e.Details["pattern"], e.Details["command"]),
	}}
}

func cleanup(c *call) error {
	var req struct {
		SessionID string `json:"session_id"`
	}
	if err := c.readJSON(&req); err != nil {
		return err
	}
	s, _, err := c.open(req.SessionID)
	if err == nil {
		_, err = s.Delete(c.r.Context())
	}
	if err != nil {
		return sessionError(req.SessionID, err)
	}
	writeJSON(c.w, http.StatusOK, map[string]string{"status": "cleaned_up", "session_id": req.SessionID})
	return nil
}
