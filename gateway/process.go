package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// The process API: commands in the background, and services. A session there is a thread.

// defaultThread is the thread of requests of the process API without a session.
const defaultThread = "default"

func processRoutes() []route {
	return []route{
		{"POST /api/process/start", schemas.ScopeExec, startProcess},
		{"GET /api/process/list", schemas.ScopeRead, listProcesses},
		{"GET /api/process/{id}", schemas.ScopeRead, getProcess},
		{"DELETE /api/process/{id}", schemas.ScopeExec, killProcess},
		{"GET /api/process/{id}/logs", schemas.ScopeRead, processLogs},
		{"GET /api/process/{id}/stream", schemas.ScopeRead, streamProcess},
		{"POST /api/service/start", schemas.ScopeExec, startService},
		{"GET /api/sandbox/status", schemas.ScopeRead, sandboxStatus},
		{"GET /api/sandbox/logs", schemas.ScopeRead, sandboxLogs},
	}
}

// processAnswer describes a process.
type processAnswer struct {
	ID        string         `json:"id"`
	PID       int            `json:"pid,omitempty"`
	Command   string         `json:"command"`
	Args      []string       `json:"args"`
	Status    string         `json:"status"`
	StartTime time.Time      `json:"startTime"`
	EndTime   *time.Time     `json:"endTime,omitempty"`
	ExitCode  *int           `json:"exitCode,omitempty"`
	Reason    schemas.Reason `json:"reason,omitempty"`
	SessionID string         `json:"sessionId"`
}

func processOf(p *schemas.ProcessInfo) processAnswer {
	a := processAnswer{
		ID: p.Process, PID: p.PID, Command: p.Command, Args: append([]string{}, p.Args...), Status: string(p.Status), StartTime: p.Started,
		ExitCode: p.ExitCode,
		Reason:   p.Reason, SessionID: p.Thread,
	}
	if p.Status == schemas.StatusLost || p.Status == schemas.StatusRejected {
		a.Status = string(schemas.StatusFailed) // clients know five; the reason says which
	}
	if !p.Ended.IsZero() {
		a.EndTime = &p.Ended
	}
	return a
}

// processStart is what processes and services have in common.
type processStart struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	ProcessID string            `json:"processId"`
	SessionID string            `json:"sessionId"`
	Env       map[string]string `json:"env"`
	Cwd       string            `json:"cwd"`
}

func startProcess(c *call) error {
	var req struct {
		processStart
		AutoCleanup *bool `json:"autoCleanup"`
		Timeout     int64 `json:"timeout"` // milliseconds
	}
	if err := c.readJSON(&req); err != nil {
		return err
	}
	p, err := c.client.StartProcess(c.r.Context(), client.Request{
		Thread: cmp.Or(req.SessionID, defaultThread), Key: req.ProcessID, Command: req.Command, Args: req.Args, Env: req.Env, Dir: req.Cwd,
		Timeout: time.Duration(req.Timeout) * time.Millisecond, AutoCleanup: req.AutoCleanup == nil || *req.AutoCleanup,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	if p.Queued() { // it has no record yet
		writeJSON(c.w, http.StatusOK, processAnswer{
			ID: p.ID(), Command: req.Command, Args: append([]string{}, req.Args...), Status: string(schemas.StatusStarting),
			StartTime: time.Now().UTC(), SessionID: p.Thread(),
		})
		return nil
	}
	if err := c.started(p); err != nil {
		return err
	}
	info, err := p.Info(c.r.Context())
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, processOf(info))
	return nil
}

// startPatience is how long the answer to a start waits for the process id. A sandbox may take longer to start.
const startPatience = 10 * time.Second

// started waits until a process has started or ended, at most for startPatience.
func (c *call) started(p *client.Process) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), startPatience)
	defer cancel()
	found := errors.New("started")
	err := c.client.Events(ctx, client.EventQuery{Thread: p.Thread(), Process: p.ID(), Follow: true}, func(ev *schemas.Event) error {
		if ev.Type == schemas.TypeProcessStarted || ev.Type.Terminal() {
			return found
		}
		return nil
	})
	if errors.Is(err, found) || ctx.Err() != nil {
		return nil
	}
	return err
}

func listProcesses(c *call) error {
	limit, err := c.queryNumber("limit", 100, 1, maxListed)
	if err != nil {
		return err
	}
	list, err := c.client.Processes(c.r.Context(), client.ProcessQuery{Thread: c.query("sessionId"), All: true, Limit: limit})
	if err != nil {
		return err
	}
	all := make([]processAnswer, len(list))
	for i := range list {
		all[i] = processOf(&list[i])
	}
	writeJSON(c.w, http.StatusOK, map[string]any{"processes": all, "count": len(all)})
	return nil
}

func (c *call) query(name string) string { return c.r.URL.Query().Get(name) }

// queryNumber is a number from least to most. Errors: invalid_argument.
func (c *call) queryNumber(name string, standard, least, most int) (int, error) {
	text := c.query(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %.20q is not from %d to %d", name, text, least, most).With("path", name)
	}
	return n, nil
}

// process describes the process of a request. Errors: those of findProcess, unavailable.
func (c *call) process() (*schemas.ProcessInfo, error) {
	p, err := c.findProcess()
	if err != nil {
		return nil, err
	}
	return p.Info(c.r.Context())
}

// findProcess returns the process of a request: its path has the id, or the name that it was started under in its session. Errors:
// not_found, invalid_argument, unavailable.
func (c *call) findProcess() (*client.Process, error) {
	id := c.r.PathValue("id")
	p, err := c.client.Process(c.r.Context(), c.query("sessionId"), id)
	if !mayBeKey(err) {
		return p, err
	}
	thread := cmp.Or(c.query("sessionId"), defaultThread)
	if schemas.ValidID(thread) {
		if named, nameErr := c.client.Process(c.r.Context(), thread, c.client.ProcessID(thread, id)); nameErr == nil {
			return named, nil
		}
	}
	return nil, err
}

// describeProcess describes a process. Errors: not_found, invalid_argument, unavailable.
func (c *call) describeProcess(thread, process string) (*schemas.ProcessInfo, error) {
	p, err := c.client.Process(c.r.Context(), thread, process)
	if err != nil {
		return nil, err
	}
	return p.Info(c.r.Context())
}

func getProcess(c *call) error {
	p, err := c.process()
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, processOf(p))
	return nil
}

// killGrace is the time between SIGTERM and SIGKILL of a process that is deleted.
const killGrace = 5 * time.Second

func killProcess(c *call) error {
	p, err := c.process()
	if err != nil {
		return err
	}
	running, err := c.client.Process(c.r.Context(), p.Thread, p.Process)
	if err != nil {
		return err
	}
	switch signal := c.query("signal"); {
	case p.Status.Ended(): // there is nothing to end
	case signal == "" || signal == "SIGTERM":
		err = running.Kill(c.r.Context(), killGrace)
	case signal == "SIGKILL":
		err = running.Kill(c.r.Context(), 0)
	default:
		err = running.Signal(c.r.Context(), signal)
	}
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, map[string]any{"success": true, "id": p.Process})
	return nil
}

// maxLogs is the most bytes of each stream that logs returns.
const maxLogs = schemas.DefaultOutputLimit

func processLogs(c *call) error {
	p, err := c.process()
	if err != nil {
		return err
	}
	var kept [2][]byte
	truncated := false
	lost := func(schemas.LogGap) error {
		truncated = true
		return nil
	}
	err = c.client.Logs(c.r.Context(), client.LogQuery{Thread: p.Thread, Process: p.Process, Gap: lost}, func(k schemas.Chunk) error {
		i := 0
		if k.Stream == schemas.Stderr {
			i = 1
		}
		room := int(maxLogs) - len(kept[i])
		truncated = truncated || len(k.Data) > room
		kept[i] = append(kept[i], k.Data[:min(len(k.Data), room)]...)
		return nil
	})
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, struct {
		ProcessID string `json:"processId"`
		Stdout    string `json:"stdout"`
		Stderr    string `json:"stderr"`
		Truncated bool   `json:"truncated,omitempty"`
	}{p.Process, strings.ToValidUTF8(string(kept[0]), "\uFFFD"), strings.ToValidUTF8(string(kept[1]), "\uFFFD"), truncated})
	return nil
}

func streamProcess(c *call) error {
	p, err := c.findProcess()
	if err != nil {
		return err
	}
	return c.followOutput(p, 0)
}

// serviceAnswer describes a service.
type serviceAnswer struct {
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	ProcessID string `json:"processId,omitempty"`
	Command   string `json:"command"`
	serviceHealth
}

type serviceHealth struct {
	Status          string `json:"status"`
	BaseURL         string `json:"base_url"`
	Healthy         bool   `json:"healthy"`
	RestartAttempts int    `json:"restart_attempts"`
	LogLines        int    `json:"log_lines"` // at most, that its log has
}

func healthOf(s *schemas.Service) serviceHealth {
	return serviceHealth{string(s.State), s.BaseURL(), s.Healthy(), s.RestartAttempts, client.MaxServiceLines}
}

func startService(c *call) error {
	var req struct {
		processStart
		HealthCheck *struct {
			Port     int64  `json:"port"`
			Path     string `json:"path"`
			Interval int64  `json:"interval"` // milliseconds
		} `json:"healthCheck"`
	}
	if err := c.readJSON(&req); err != nil {
		return err
	}
	start := client.ServiceRequest{
		Name:        cmp.Or(req.ProcessID, "s"+strings.ToLower(ulid.Make().String())),
		ServiceSpec: schemas.ServiceSpec{Command: req.Command, Args: req.Args, Env: req.Env, Cwd: req.Cwd},
	}
	if h := req.HealthCheck; h != nil {
		start.Health = &schemas.HealthCheck{Port: h.Port, Path: h.Path, IntervalMS: h.Interval}
	}
	s, err := c.client.Services(cmp.Or(req.SessionID, defaultThread)).Start(c.r.Context(), start)
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, serviceAnswer{s.Name, s.Thread, s.Process(), s.Spec.Command, healthOf(s)})
	return nil
}

// The agent that `sluice up` supervises.
const (
	agentThread  = "sandbox-agent"
	agentService = "agent"
)

func sandboxStatus(c *call) error {
	s, err := c.agent(c.r.Context())
	if err != nil {
		return err
	}
	if s == nil {
		writeJSON(c.w, http.StatusOK, serviceHealth{Status: "not_started", LogLines: client.MaxServiceLines})
		return nil
	}
	writeJSON(c.w, http.StatusOK, healthOf(s))
	return nil
}

// agent is the supervised agent; nil before its first start.
func (c *call) agent(ctx context.Context) (*schemas.Service, error) {
	s, err := c.client.Services(agentThread).Get(ctx, agentService)
	if schemas.CodeOf(err) == schemas.CodeNotFound {
		return nil, nil
	}
	return s, err
}

func sandboxLogs(c *call) error {
	tail, err := c.queryNumber("tail", 100, 1, client.MaxServiceLines)
	if err != nil {
		return err
	}
	lines := []string{}
	s, err := c.agent(c.r.Context())
	if err == nil && s != nil {
		lines, err = c.client.Services(agentThread).Logs(c.r.Context(), agentService, tail)
	}
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, map[string]any{"logs": append([]string{}, lines...)})
	return nil
}
