package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// Limits of times, in seconds.
const (
	defaultTimeout = 120
	maxTimeout     = 3600
	maxWait        = 60
)

// command is what runs.
type command struct {
	target
	Command string            `json:"command,omitempty" jsonschema:"Shell script for sh, such as: make test 2>&1 | tail -n 20. Give this or argv."`
	Argv    []string          `json:"argv,omitempty" jsonschema:"Program and arguments, run without a shell, in place of command."`
	Cwd     string            `json:"cwd,omitempty" jsonschema:"Working directory, relative to the workspace. Default: the workspace."`
	Env     map[string]string `json:"env,omitempty" jsonschema:"Environment variables, added to those of the sandbox."`
}

// request is the request of a command. Errors: invalid_argument.
func (s *server) request(c *command) (client.Request, error) {
	req := client.Request{Template: s.Template, Provider: s.Provider, Image: s.Image, Dir: c.Cwd, Env: c.Env}
	var err error
	if req.Thread, err = s.thread(c.target); err != nil {
		return req, err
	}
	switch {
	case (c.Command == "") == (len(c.Argv) == 0):
		return req, schemas.Errorf(schemas.CodeInvalidArgument, "give either command, a shell script, or argv, a program with its arguments")
	case c.Command != "":
		req.Command, req.Args = "sh", []string{"-c", c.Command}
	default:
		req.Command, req.Args = c.Argv[0], c.Argv[1:]
	}
	return req, nil
}

type runInput struct {
	command
	Stdin          string `json:"stdin,omitempty" jsonschema:"Text for the standard input of the command, at most 1 MiB. Default: empty."`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty" jsonschema:"Kills the command and all that it started after so many seconds."`
	MaxBytes       int    `json:"max_bytes,omitempty" jsonschema:"Most bytes of stdout, and of stderr, to return. The log keeps the rest."`
	Encoding       string `json:"encoding,omitempty" jsonschema:"How stdout and stderr are returned: text, or base64 to keep every byte."`
}

// ran is a process with output.
type ran struct {
	Process  string                `json:"process" jsonschema:"Id of the process, for read_output, write_input and stop_process."`
	Thread   string                `json:"thread" jsonschema:"Thread of the process."`
	Status   schemas.ProcessStatus `json:"status" jsonschema:"starting, running, completed (exit code 0), failed, killed, lost or rejected (it never ran)."`
	ExitCode *int                  `json:"exit_code,omitempty" jsonschema:"Exit code once it has ended: 124 after a timeout, 127 for a program that was not found, 128+n after signal n."`
	Reason   schemas.Reason        `json:"reason,omitempty" jsonschema:"Why it ended: exited, killed, timed_out, oom (the memory limit), lost or rejected."`
	Seconds  float64               `json:"seconds,omitempty" jsonschema:"How long it ran, in seconds."`
	Matched  bool                  `json:"matched,omitempty" jsonschema:"The text of until was printed."`
	Problem  string                `json:"problem,omitempty" jsonschema:"What went wrong besides the exit code, such as a full workspace."`
	Stdout   output                `json:"stdout"`
	Stderr   output                `json:"stderr"`
}

type startInput struct {
	command
	Name           string `json:"name,omitempty" jsonschema:"Name of your own choice, 1 to 256 bytes. A second call with the same name and command returns the process that the first has started. Default: a new process."`
	StdinOpen      bool   `json:"stdin_open,omitempty" jsonschema:"Leaves the standard input open for write_input. Default: it is empty."`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty" jsonschema:"Kills the process and all that it started after so many seconds. Default: never."`
}

type started struct {
	Process string `json:"process" jsonschema:"Id of the process, for read_output, write_input and stop_process."`
	Thread  string `json:"thread" jsonschema:"Thread of the process."`
	Queued  bool   `json:"queued,omitempty" jsonschema:"No worker has room yet: it starts later."`
}

func (s *server) addCommandTools() {
	add(s, tool{
		name: "run_command", title: "Run a command", destroys: true, world: true,
		description: fmt.Sprintf("Run a shell script, or a program, in the sandbox and wait for its end. Returns the exit code and the output: "+
			"of each stream the first max_bytes, or, of a longer one, its beginning and its end; read_output reads what is left out. "+
			"An exit code other than 0 is a result, not an error. The command and all that it started are killed when the call is canceled, and after "+
			"timeout_seconds (default %d, at most %d). What it leaves in the background is killed when it ends: use start_process for that.", defaultTimeout, maxTimeout),
		input: rules{
			"argv": filled, "timeout_seconds": between(1, maxTimeout, defaultTimeout),
			"max_bytes": between(1, maxBytes, defaultBytes), "encoding": oneOf(encodingText, encodingBase64),
		},
	}, s.runCommand)
	add(s, tool{
		name: "start_process", title: "Start a process", destroys: true, world: true,
		description: "Start a shell script, or a program, in the background of the sandbox: a server, or work of more than some minutes. " +
			"Returns at once with the id of the process. Follow it with read_output, end it with stop_process. It goes on when this connection ends, " +
			"and ends with the session of the thread.",
		input: rules{"argv": filled, "timeout_seconds": between(0, 24*maxTimeout, 0)},
	}, s.startProcess)
}

// runCommand runs a command to its end. Errors: those of client.Exec, too_large.
func (s *server) runCommand(ctx context.Context, req *sdk.CallToolRequest, in runInput) (ran, error) {
	r, err := s.request(&in.command)
	if err != nil {
		return ran{}, err
	}
	stdin, err := decode("stdin", in.Stdin, encodingText)
	if err != nil {
		return ran{}, err
	}
	if len(stdin) > 0 {
		r.Stdin = strings.NewReader(in.Stdin)
	}
	r.Timeout = time.Duration(in.TimeoutSeconds) * time.Second
	streams := newStreams(in.MaxBytes)
	r.OnOutput = func(k schemas.Chunk) { streams.add(&k) }
	r.OutputLimit = -1 // streams has the output
	stop := watch(ctx, req, streams.status)
	result, err := s.Client.Exec(ctx, r)
	stop()
	if err != nil {
		return ran{}, err
	}
	out := ran{Process: result.Process, Thread: result.Thread, Seconds: result.DurationMS / 1000}
	out.ended(result.Status(), result.Reason, result.ExitCode)
	if result.Error != nil {
		out.Problem = cut(clean(result.Error.Error()), maxMessageText)
	}
	out.Stdout, out.Stderr = streams.outputs(in.Encoding)
	return out, nil
}

func (o *ran) ended(status schemas.ProcessStatus, reason schemas.Reason, code int) {
	o.Status, o.Reason, o.ExitCode = status, reason, &code
}

// startProcess starts a command in the background. Errors: those of client.StartProcess.
func (s *server) startProcess(ctx context.Context, _ *sdk.CallToolRequest, in startInput) (started, error) {
	r, err := s.request(&in.command)
	if err != nil {
		return started{}, err
	}
	r.Key, r.StdinOpen, r.Timeout = in.Name, in.StdinOpen, time.Duration(in.TimeoutSeconds)*time.Second
	p, err := s.Client.StartProcess(ctx, r)
	if err != nil {
		return started{}, err
	}
	return started{Process: p.ID(), Thread: p.Thread(), Queued: p.Queued()}, nil
}

// streams captures the output of a process. Its methods are safe for concurrent use.
type streams struct {
	mu             sync.Mutex
	stdout, stderr captured
	last           schemas.Stream
}

func newStreams(limit int) *streams {
	return &streams{stdout: captured{max: limit}, stderr: captured{max: limit}, last: schemas.Stdout}
}

func (s *streams) of(stream schemas.Stream) *captured {
	if stream == schemas.Stderr {
		return &s.stderr
	}
	return &s.stdout
}

// add adds a chunk, and reports whether all output so far fits.
func (s *streams) add(k *schemas.Chunk) (fits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = k.Stream
	return s.of(k.Stream).add(k)
}

// lose notes that output is missing.
func (s *streams) lose(g schemas.LogGap) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(g.Stream).missing = true
	return nil
}

// status says how far the process is.
func (s *streams) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.stdout.end + s.stderr.end
	if n == 0 {
		return "no output yet"
	}
	return fmt.Sprintf("%d bytes of output: %s", n, s.of(s.last).lastLine())
}

func (s *streams) outputs(encoding string) (stdout, stderr output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdout.output(encoding), s.stderr.output(encoding)
}
