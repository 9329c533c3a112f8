package mcp

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

type readOutputInput struct {
	target
	Process      string  `json:"process" jsonschema:"Id of the process."`
	StdoutOffset int64   `json:"stdout_offset,omitempty" jsonschema:"Where to begin in stdout, in bytes: next_offset of the last result. Default: the beginning."`
	StderrOffset int64   `json:"stderr_offset,omitempty" jsonschema:"Where to begin in stderr, in bytes."`
	WaitSeconds  float64 `json:"wait_seconds,omitempty" jsonschema:"Waits up to so many seconds for the end of the process, or for max_bytes of output. Default: returns what is there now."`
	Until        string  `json:"until,omitempty" jsonschema:"While it waits, returns as soon as the new output contains this text, such as: listening on."`
	MaxBytes     int     `json:"max_bytes,omitempty" jsonschema:"Most bytes of stdout, and of stderr, to return."`
	Encoding     string  `json:"encoding,omitempty" jsonschema:"How stdout and stderr are returned: text, or base64 to keep every byte."`
}

type processInput struct {
	target
	Process string `json:"process" jsonschema:"Id of the process."`
}

type writeInput struct {
	processInput
	Text string `json:"text,omitempty" jsonschema:"What to write, at most 1 MiB. End a line with a newline."`
	End  bool   `json:"end,omitempty" jsonschema:"Closes the standard input after the text."`
}

type written struct {
	Bytes int `json:"bytes" jsonschema:"Bytes that the process has taken."`
}

type stopInput struct {
	processInput
	GraceSeconds int `json:"grace_seconds,omitempty" jsonschema:"Seconds between SIGTERM and SIGKILL."`
}

type listProcessesInput struct {
	target
	All    bool   `json:"all,omitempty" jsonschema:"Also lists processes that have ended. Default: those that run."`
	Limit  int    `json:"limit,omitempty" jsonschema:"Most processes that have ended."`
	Before uint64 `json:"before,omitempty" jsonschema:"Continues a list of processes that have ended: next_before of the last result."`
}

type listed struct {
	Process  string                `json:"process" jsonschema:"Id of the process."`
	Status   schemas.ProcessStatus `json:"status" jsonschema:"starting, running, completed, failed, killed, lost or rejected."`
	ExitCode *int                  `json:"exit_code,omitempty" jsonschema:"Exit code once it has ended."`
	Command  string                `json:"command" jsonschema:"The beginning of the command."`
	Started  string                `json:"started" jsonschema:"When it started, in UTC (RFC 3339)."`
	Ended    string                `json:"ended,omitempty" jsonschema:"When it ended, in UTC."`
}

type processList struct {
	Processes  []listed `json:"processes"`
	NextBefore uint64   `json:"next_before,omitempty" jsonschema:"There may be more: go on with this as before."`
}

func (s *server) addProcessTools() {
	add(s, tool{
		name: "read_output", title: "Read the output of a process", reads: true,
		description: "Read the output of a process, of run_command or start_process, while it runs or later, and its status. Continue with next_offset of each stream. " +
			"With wait_seconds it waits for the end of the process; that is better than to call again and again.",
		input: rules{
			"stdout_offset": atLeast(0), "stderr_offset": atLeast(0), "wait_seconds": between(0, maxWait, 0),
			"max_bytes": between(4, maxBytes, defaultBytes), "encoding": oneOf(encodingText, encodingBase64),
		},
	}, s.readOutput)
	add(s, tool{
		name: "list_processes", title: "List processes", reads: true,
		description: "List the processes of the thread, the newest first.",
		input:       rules{"limit": between(1, 1000, 50), "before": atLeast(0)},
	}, s.listProcesses)
	add(s, tool{
		name: "write_input", title: "Write to the input of a process", world: true,
		description: "Write to the standard input of a process that start_process has started with stdin_open. Returns when the process has taken it.",
	}, s.writeInput)
	add(s, tool{
		name: "stop_process", title: "Stop a process", destroys: true, repeats: true,
		description: "End a process and all that it started: SIGTERM, grace_seconds, SIGKILL. Returns its last status. One that has ended is no error.",
		input:       rules{"grace_seconds": between(0, maxWait, 5)},
	}, s.stopProcess)
}

// errEnough ends the reading of output.
var errEnough = errors.New("enough output")

// readOutput reads on in the output of a process. Errors: those of client.Logs.
func (s *server) readOutput(ctx context.Context, req *sdk.CallToolRequest, in readOutputInput) (ran, error) {
	thread, err := s.thread(in.target)
	if err != nil {
		return ran{}, err
	}
	p, err := s.Client.Process(ctx, thread, in.Process)
	if err != nil {
		return ran{}, err
	}
	r := &outputReader{process: p, streams: newStreams(in.MaxBytes), until: in.Until}
	r.stdout.begin, r.stdout.end = in.StdoutOffset, in.StdoutOffset
	r.stderr.begin, r.stderr.end = in.StderrOffset, in.StderrOffset
	if in.WaitSeconds > 0 {
		stop := watch(ctx, req, r.status)
		err = r.follow(ctx, time.Duration(in.WaitSeconds*float64(time.Second)))
		stop()
		if err != nil {
			return ran{}, err
		}
	}
	// What was printed before the status was read is complete in the log.
	info, err := p.Info(ctx)
	if err != nil {
		return ran{}, err
	}
	if err := r.read(ctx, false); err != nil {
		return ran{}, err
	}
	out := ran{Process: p.ID(), Thread: thread, Status: info.Status, Matched: r.matched()}
	if info.ExitCode != nil {
		out.ended(info.Status, info.Reason, *info.ExitCode)
		out.Seconds = info.Ended.Sub(info.Started).Seconds()
	}
	out.Stdout, out.Stderr = r.parts(in.Encoding)
	return out, nil
}

// outputReader reads output from an offset of each stream on.
type outputReader struct {
	*streams
	process *client.Process
	until   string
	full    bool // a chunk did not fit: there is more
}

// follow reads for some time, until the process has ended, there is enough, or the text was printed.
func (r *outputReader) follow(ctx context.Context, wait time.Duration) error {
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := r.read(timed, true)
	if timed.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// read reads what is stored, and with follow also what comes.
func (r *outputReader) read(ctx context.Context, follow bool) error {
	if r.full {
		return nil
	}
	q := client.LogQuery{StdoutFrom: r.stdout.end, StderrFrom: r.stderr.end, Follow: follow, Gap: r.lose}
	err := r.process.Logs(ctx, q, func(k schemas.Chunk) error {
		if r.full = !r.add(&k); r.full || follow && r.matched() {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// matched reports whether the text was printed.
func (r *outputReader) matched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until != "" && (bytes.Contains(r.stdout.head, []byte(r.until)) || bytes.Contains(r.stderr.head, []byte(r.until)))
}

// parts returns what was read of both streams. The next offset of a stream that did not fit is where its part ends.
func (r *outputReader) parts(encoding string) (stdout, stderr output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	part := func(c *captured) output {
		data := c.head
		if c.headEnded && encoding != encodingBase64 {
			data = wholeEnd(data)
		}
		o := piece(data, c.begin, encoding)
		o.More, o.Missing = r.full, c.missing
		return o
	}
	return part(&r.stdout), part(&r.stderr)
}

func (s *server) listProcesses(ctx context.Context, _ *sdk.CallToolRequest, in listProcessesInput) (processList, error) {
	list := processList{Processes: []listed{}}
	thread, err := s.thread(in.target)
	if err != nil {
		return list, err
	}
	found, err := s.Client.Processes(ctx, client.ProcessQuery{Thread: thread, All: in.All, Limit: in.Limit, Before: in.Before})
	if err != nil {
		return list, err
	}
	ended := 0
	for i := range found {
		p := &found[i]
		l := listed{
			Process: p.Process, Status: p.Status, ExitCode: p.ExitCode, Started: p.Started.Format(time.RFC3339),
			Command: cut(clean(strings.Join(append([]string{p.Command}, p.Args...), " ")), maxLine),
		}
		if !p.Ended.IsZero() {
			l.Ended = p.Ended.Format(time.RFC3339)
		}
		if p.Seq > 0 {
			ended++
			list.NextBefore = p.Seq
		}
		list.Processes = append(list.Processes, l)
	}
	if ended < in.Limit {
		list.NextBefore = 0
	}
	return list, nil
}

// writeInput writes to the standard input of a process. Errors: those of client.Process.WriteStdin, too_large.
func (s *server) writeInput(ctx context.Context, _ *sdk.CallToolRequest, in writeInput) (written, error) {
	thread, err := s.thread(in.target)
	if err != nil {
		return written{}, err
	}
	data, err := decode("text", in.Text, encodingText)
	if err != nil {
		return written{}, err
	}
	p, err := s.Client.Process(ctx, thread, in.Process)
	if err != nil {
		return written{}, err
	}
	if err := p.WriteStdin(ctx, data); err != nil {
		return written{}, err
	}
	if in.End {
		err = p.CloseStdin(ctx)
	}
	return written{len(data)}, err
}

// stopProcess ends a process, and waits for its end. Errors: those of client.Kill; deadline_exceeded when it has not ended soon after the grace.
func (s *server) stopProcess(ctx context.Context, _ *sdk.CallToolRequest, in stopInput) (listed, error) {
	thread, err := s.thread(in.target)
	if err != nil {
		return listed{}, err
	}
	p, err := s.Client.Process(ctx, thread, in.Process)
	if err != nil {
		return listed{}, err
	}
	grace := time.Duration(in.GraceSeconds) * time.Second
	killErr := p.Kill(ctx, grace)
	info, err := p.Info(ctx)
	if err != nil {
		return listed{}, err
	}
	if !info.Status.Ended() {
		if killErr != nil {
			return listed{}, killErr
		}
		wait, cancel := context.WithTimeout(ctx, grace+killTimeout)
		defer cancel()
		if _, err := p.Wait(wait); wait.Err() != nil {
			return listed{}, err
		}
		if info, err = p.Info(ctx); err != nil {
			return listed{}, err
		}
	}
	return listed{
		Process: p.ID(), Status: info.Status, ExitCode: info.ExitCode, Command: cut(clean(info.Command), maxLine),
		Started: info.Started.Format(time.RFC3339), Ended: info.Ended.Format(time.RFC3339),
	}, nil
}

// killTimeout is how long a process may take to end after SIGKILL.
const killTimeout = 10 * time.Second
