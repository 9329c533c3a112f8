package gateway

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// execBody is a command: what the contract says of one, and what it is for.
type execBody struct {
	// Key makes the command run once, however often it is sent. Default: a new key.
	Key string `json:"key,omitempty"`
	// Provider, Template and Image are those of the session that the thread gets when it has none. Default: the worker's choice.
	Provider string `json:"provider,omitempty"`
	Template string `json:"template,omitempty"`
	Image    string `json:"image,omitempty"`
	// Session is the id that the session of the thread must have. Default: any.
	Session string `json:"session,omitempty"`
	// Labels are repeated by all events of the command.
	Labels map[string]string `json:"labels,omitempty"`
	schemas.Exec
}

func (b *execBody) request(c *call) client.Request {
	req := client.Request{
		Thread: c.thread(), Key: b.Key, Provider: b.Provider, Template: b.Template, Image: b.Image, Session: b.Session, Command: b.Command,
		Args: b.Args, Env: b.Env,
		Dir: b.Cwd, Timeout: millis(b.TimeoutMS), Grace: millis(b.GraceMS), StdinOpen: b.StdinOpen, StdinFrom: b.StdinFrom,
		Terminal: b.Terminal(), Retry: b.Retry,
		AutoCleanup: b.AutoCleanup, Main: b.Main, Origin: c.origin(b.Labels),
	}
	if b.OutputLimit != nil {
		if req.OutputLimit = *b.OutputLimit; req.OutputLimit == 0 {
			req.OutputLimit = -1
		}
	}
	if len(b.Stdin) > 0 {
		req.Stdin = bytes.NewReader(b.Stdin)
	}
	return req
}

// traceParent is the form of the header of that name.
var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// origin is the labels of a request, and its trace. A header that is none is ignored.
func (c *call) origin(labels map[string]string) schemas.Origin {
	o := schemas.Origin{Labels: labels}
	if parent, state := c.r.Header.Get(schemas.HeaderTraceParent), c.r.Header.Get(schemas.HeaderTraceState); traceParent.MatchString(parent) {
		o.TraceParent = parent
		if len(state) <= schemas.MaxTraceState {
			o.TraceState = state
		}
	}
	return o
}

// processList is a page of processes.
type processList struct {
	// Processes are those that run, the newest first, and then those that have ended, the last one first.
	Processes []schemas.ProcessInfo `json:"processes"`
	// Next is the parameter before of the next page; absent on the last one.
	Next uint64 `json:"next,omitempty"`
}

// signalBody is a signal to send.
type signalBody struct {
	// Signal is its name, such as SIGINT. Required.
	Signal string `json:"signal"`
}

func v1Processes() []endpoint {
	const one = "/v1/processes/{process}"
	return []endpoint{
		{
			route: route{"POST /v1/threads/{thread}/exec", schemas.ScopeExec, v1Exec}, body: execBody{}, answer: schemas.Result{}, events: true,
			summary: "Run a command, and wait for its end. When the request ends before, the command is canceled; as a stream it goes on",
		},
		{
			route: route{"POST /v1/threads/{thread}/processes", schemas.ScopeExec, v1StartProcess}, body: execBody{},
			answer: schemas.ProcessInfo{}, status: http.StatusCreated,
			summary: "Start a command in the background",
		},
		{
			route:   route{"GET /v1/processes", schemas.ScopeRead, v1ListProcesses},
			summary: "The processes that run, and with all those that have ended", answer: processList{},
			query: []string{"thread: of this thread", "all: true also lists those that have ended",
				"usage: true measures what those that run use", "limit: at most so many ended ones, 100 unless set",
				"before: next of the last answer"},
		},
		{route: route{"GET " + one, schemas.ScopeRead, v1GetProcess}, summary: "A process", answer: schemas.ProcessInfo{}},
		{route: route{"GET " + one + "/result", schemas.ScopeRead, v1Result}, summary: "How a process ended; 503 while it runs",
			answer: schemas.Result{}, query: []string{"wait: true waits for its end"}},
		{
			route: route{"GET " + one + "/output", schemas.ScopeRead, v1Output}, summary: "The output of a process until its end, as a stream",
			gives: "text/event-stream",
			query: []string{"tail: begin with so many last lines, of both streams together; all unless set",
				"after: as Last-Event-ID, for readers that cannot set a header"},
		},
		{
			route: route{"GET " + one + "/log", schemas.ScopeRead, v1Log}, gives: "application/octet-stream",
			summary: "The output of a process so far, as a file; the trailer Sluice-Missing-Bytes says how much the log has no more",
			query:   []string{"stream: stdout or stderr; both, in the order of their storing, unless set"},
		},
		{
			route:   route{"DELETE " + one + "/log", schemas.ScopeExec, v1DeleteLog},
			summary: "Delete the output of a process that has ended; its record stays", status: http.StatusNoContent,
		},
		{
			route:   route{"DELETE " + one, schemas.ScopeExec, v1KillProcess},
			summary: "End a process with its tree: SIGTERM, the grace, SIGKILL", status: http.StatusNoContent,
			query: []string{queryGrace},
		},
		{
			route: route{"POST " + one + "/signal", schemas.ScopeExec, v1Signal}, summary: "Send a signal to the group of a process",
			body:   signalBody{},
			status: http.StatusNoContent,
		},
	}
}

func v1Exec(c *call) error {
	var b execBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	ctx, req := c.r.Context(), b.request(c)
	if !c.wantsEvents() {
		r, err := c.client.Exec(ctx, req)
		return give(c, http.StatusOK, r, err)
	}
	x, err := c.client.ExecStream(ctx, req)
	return c.streamExecution(x, err)
}

// streamExecution answers with the output and the end of a command.
func (c *call) streamExecution(x *client.Execution, err error) error {
	if err != nil {
		return err
	}
	defer x.Close()
	c.locate(x.Process())
	return c.stream(func(ctx context.Context, send func(streamEvent) error) error {
		o := newOutput(c.thread(), x.Process(), place{})
		for e, err := range x.Events(ctx) {
			switch {
			case err != nil:
				return err
			case e.Chunk != nil:
				err = o.send(send)(*e.Chunk)
			case e.Result != nil:
				err = o.end(e.Result, send)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// locate names the process of a request before its answer.
func (c *call) locate(process string) { c.w.Header().Set("Location", "/v1/processes/"+process) }

func v1StartProcess(c *call) error {
	var b execBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	if len(b.Stdin) > 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "stdin: a process in the background has none: use exec").With("path", "stdin")
	}
	p, err := c.client.StartProcess(c.r.Context(), b.request(c))
	if err != nil {
		return err
	}
	defer p.Close()
	c.locate(p.ID())
	if p.Queued() { // it has no record yet
		writeJSON(c.w, http.StatusCreated, schemas.ProcessInfo{Process: p.ID(), Thread: p.Thread(), Status: schemas.StatusStarting,
			Command: b.Command})
		return nil
	}
	info, err := p.Info(c.r.Context())
	return give(c, http.StatusCreated, info, err)
}

func v1ListProcesses(c *call) error {
	all, err := c.flag("all")
	if err != nil {
		return err
	}
	usage, err := c.flag("usage")
	if err != nil {
		return err
	}
	limit, err := c.queryNumber("limit", 100, 1, maxListed)
	if err != nil {
		return err
	}
	before, err := c.sequence("before")
	if err != nil {
		return err
	}
	list, err := c.client.Processes(c.r.Context(), client.ProcessQuery{
		Thread: c.query("thread"), All: all, Usage: usage, Limit: limit, Before: before,
	})
	if err != nil {
		return err
	}
	answer, ended := processList{Processes: list}, 0
	for i := range list {
		if list[i].Seq > 0 {
			ended++
		}
	}
	if all && ended == limit {
		answer.Next = list[len(list)-1].Seq
	}
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

// sequence is a sequence in the query; 0 for none. Errors: invalid_argument.
func (c *call) sequence(name string) (uint64, error) {
	text := c.query(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, schemas.Errorf(schemas.CodeInvalidArgument, "%s: %.30q is no sequence", name, text).With("path", name)
	}
	return n, nil
}

func v1GetProcess(c *call) error {
	p, err := c.describeProcess("", c.r.PathValue("process"))
	return give(c, http.StatusOK, p, err)
}

// running is the process of a request.
func (c *call) running() (*client.Process, error) {
	return c.client.Process(c.r.Context(), "", c.r.PathValue("process"))
}

func v1Result(c *call) error {
	p, err := c.running()
	if err != nil {
		return err
	}
	wait, err := c.flag("wait")
	if err != nil {
		return err
	}
	if wait {
		if r, err := p.Wait(c.r.Context()); r == nil { // with a result, the error is in it
			return err
		}
	}
	r, err := p.Result(c.r.Context())
	return give(c, http.StatusOK, r, err)
}

func v1Output(c *call) error {
	tail, err := c.queryNumber("tail", 0, 0, client.MaxServiceLines)
	if err != nil {
		return err
	}
	p, err := c.running()
	if err != nil {
		return err
	}
	return c.followOutput(p, tail)
}

// headerMissing is the trailer that says how many bytes of a downloaded log are missing.
const headerMissing = "Sluice-Missing-Bytes"

func v1Log(c *call) error {
	only := schemas.Stream(c.query("stream"))
	if only != "" && !slices.Contains(schemas.Streams(), only) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "stream is %.20q: use one of %v, or none for both", only, schemas.Streams()).With("path", "stream")
	}
	p, err := c.running()
	if err != nil {
		return err
	}
	h, missing := c.w.Header(), int64(0)
	begin := sync.OnceFunc(func() {
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", attachment(p.ID()+".log"))
		h.Set("Trailer", headerMissing)
		c.w.WriteHeader(http.StatusOK)
	})
	err = c.client.Logs(c.r.Context(), client.LogQuery{Process: p.ID(), Gap: func(g schemas.LogGap) error {
		if only == "" || g.Stream == only {
			missing += max(0, g.To-g.From)
		}
		return nil
	}}, func(k schemas.Chunk) error {
		if only != "" && k.Stream != only {
			return nil
		}
		if err := c.quota.room(time.Now(), 0); err != nil {
			return err
		}
		begin()
		_, err := c.w.Write(k.Data)
		return err
	})
	if err != nil {
		return err
	}
	begin()
	h.Set(headerMissing, strconv.FormatInt(missing, 10))
	return nil
}

func v1DeleteLog(c *call) error {
	p, err := c.running()
	if err == nil {
		err = p.DeleteOutput(c.r.Context())
	}
	return c.done(err)
}

func v1KillProcess(c *call) error {
	grace, err := c.grace()
	if err != nil {
		return err
	}
	p, err := c.running()
	if err == nil {
		err = p.Kill(c.r.Context(), millis(grace))
	}
	return c.done(err)
}

func v1Signal(c *call) error {
	var b signalBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	p, err := c.running()
	if err == nil {
		err = p.Signal(c.r.Context(), b.Signal)
	}
	return c.done(err)
}

// done answers that there is nothing more to say.
func (c *call) done(err error) error {
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}
