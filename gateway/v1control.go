package gateway

import (
	"errors"
	"io"
	"net/http"

	"github.com/sluice-dev/sluice/schemas"
)

// killedAnswer is what was killed.
type killedAnswer struct {
	// Killed is how many processes were killed. They end after the answer.
	Killed int `json:"killed"`
}

// cleanedAnswer is what lists leave out from now on.
type cleanedAnswer struct {
	// Cleaned is how many processes were cleaned up.
	Cleaned int `json:"cleaned"`
}

func v1Control() []endpoint {
	const all, one, stdin = "/v1/threads/{thread}/processes", "/v1/threads/{thread}/processes/{process}", "/v1/processes/{process}/stdin"
	return []endpoint{
		{
			route:   route{"DELETE " + all, schemas.ScopeExec, v1KillAll},
			summary: "Kill all processes of a thread; queued commands stay", answer: killedAnswer{}, query: []string{queryGrace},
		},
		{
			route:   route{"POST " + all + "/clean", schemas.ScopeExec, v1Clean},
			summary: "Have lists leave out the processes that have ended; their records and output stay", answer: cleanedAnswer{},
		},
		{route: route{"GET " + one, schemas.ScopeRead, v1NamedProcess}, summary: "A process, by its id or by its key in the thread",
			answer: schemas.ProcessInfo{}},
		{
			route:   route{"DELETE " + one, schemas.ScopeExec, v1Cancel},
			summary: "Cancel a command by its process or its key, also when it is queued and no worker lives; its process is killed at once",
			status:  http.StatusNoContent,
		},
		{
			route:   route{"POST " + stdin, schemas.ScopeExec, v1WriteStdin},
			summary: "Write to the standard input of a process that was started with stdin_open; streamed. One request at a time",
			content: "application/octet-stream", status: http.StatusNoContent, query: []string{"close: true ends the input after it"},
		},
		{route: route{"DELETE " + stdin, schemas.ScopeExec, v1CloseStdin}, summary: "End the standard input of a process",
			status: http.StatusNoContent},
	}
}

// queryGrace is the parameter of requests that kill.
const queryGrace = "grace_ms: time between SIGTERM and SIGKILL, 5000 unless set"

// grace reads it.
func (c *call) grace() (int64, error) {
	ms, err := c.queryNumber("grace_ms", int(killGrace.Milliseconds()), 0, int(schemas.MaxTimeoutMS))
	return int64(ms), err
}

func v1KillAll(c *call) error {
	grace, err := c.grace()
	if err != nil {
		return err
	}
	n, err := c.client.KillAll(c.r.Context(), c.thread(), millis(grace))
	return give(c, http.StatusOK, killedAnswer{n}, err)
}

func v1Clean(c *call) error {
	n, err := c.client.CleanProcesses(c.r.Context(), c.thread())
	return give(c, http.StatusOK, cleanedAnswer{n}, err)
}

// mayBeKey reports whether the name of a process that this is the error of is that of none, so that it may be a key. A key need not be an id.
func mayBeKey(err error) bool {
	return errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrInvalidArgument)
}

func v1NamedProcess(c *call) error {
	id := c.r.PathValue("process")
	p, err := c.describeProcess(c.thread(), id)
	if mayBeKey(err) {
		if named, nameErr := c.describeProcess(c.thread(), c.client.ProcessID(c.thread(), id)); nameErr == nil {
			p, err = named, nil
		}
	}
	return give(c, http.StatusOK, p, err)
}

func v1Cancel(c *call) error {
	id := c.r.PathValue("process")
	if _, err := c.client.Process(c.r.Context(), c.thread(), id); mayBeKey(err) {
		id = c.client.ProcessID(c.thread(), id) // a key: a queued command has no record
	}
	return c.done(c.client.Cancel(c.r.Context(), c.thread(), id))
}

// stdinPiece is the most bytes of a body that are passed on together.
const stdinPiece = 64 << 10

func v1WriteStdin(c *call) error {
	end, err := c.flag("close")
	if err != nil {
		return err
	}
	p, err := c.running()
	if err != nil {
		return err
	}
	for piece := make([]byte, stdinPiece); ; {
		n, err := c.r.Body.Read(piece)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return bodyError(err)
		}
		if n > 0 {
			if err := p.WriteStdin(c.r.Context(), piece[:n]); err != nil {
				return err
			}
		}
		if last {
			break
		}
	}
	if end {
		err = p.CloseStdin(c.r.Context())
	}
	return c.done(err)
}

func v1CloseStdin(c *call) error {
	p, err := c.running()
	if err == nil {
		err = p.CloseStdin(c.r.Context())
	}
	return c.done(err)
}
