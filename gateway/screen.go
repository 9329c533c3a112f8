package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// terminalStart is the first message to the terminal of a thread.
type terminalStart struct {
	// Type is start.
	Type string `json:"type"`
	// OnClose is detach, which leaves the process running when the connection ends, or kill. Default: detach.
	OnClose string `json:"on_close,omitempty"`
	execBody
}

// terminalAttach is the first message to the terminal of a process.
type terminalAttach struct {
	// Type is attach.
	Type string `json:"type"`
	// OnClose is that of a start.
	OnClose string `json:"on_close,omitempty"`
	// Rows and Cols become the size of the terminal. Default: 24 rows, 80 columns.
	Rows int64 `json:"rows,omitempty"`
	Cols int64 `json:"cols,omitempty"`
	// Seq is that of the last position, and Offset the number of bytes that the client has. Default: the last screenful.
	Seq    int64  `json:"seq,omitempty"`
	Offset *int64 `json:"offset,omitempty"`
}

// screen is a terminal that a client has joined.
type screen struct {
	keys   keyboard // nil for a process that has ended
	output func(context.Context) error
	kill   bool   // the process when the connection ends
	end    func() // kills it
}

// keyboard writes to a terminal.
type keyboard interface {
	Input(ctx context.Context, from io.Reader)
	Resize(ctx context.Context, size schemas.TerminalSize) error
	Close()
}

var (
	_ keyboard = (*client.Execution)(nil)
	_ keyboard = (*client.Attachment)(nil)
)

func v1Terminals() []endpoint {
	return []endpoint{
		{
			route:   route{"GET /v1/threads/{thread}/terminal", schemas.ScopeExec, serveTerminal(startTerminal)},
			summary: "Start a process with a terminal, over WebSocket", messages: []any{terminalStart{}, terminalResize{}, terminalEvent{}},
		},
		{
			route:   route{"GET /v1/processes/{process}/terminal", schemas.ScopeExec, serveTerminal(attachTerminal)},
			summary: "Join the terminal of a process, over WebSocket", messages: []any{terminalAttach{}, terminalResize{}, terminalEvent{}},
		},
	}
}

// opening checks the type of the first message, and reads on_close. Errors: invalid_argument.
func opening(got, want, onClose string) (kill bool, err error) {
	switch {
	case got != want:
		return false, schemas.Errorf(schemas.CodeInvalidArgument, "type: the first message is %.20q: send %s", got, want).With("path", "type")
	case onClose != "" && onClose != "detach" && onClose != "kill":
		return false, schemas.Errorf(schemas.CodeInvalidArgument, "on_close: %.20q is neither detach nor kill", onClose).With("path", "on_close")
	default:
		return onClose == "kill", nil
	}
}

func startTerminal(ctx context.Context, t *terminal, first []byte) (*screen, error) {
	var b terminalStart
	if err := schemas.DecodeStrict("message", first, &b); err != nil {
		return nil, err
	}
	kill, err := opening(b.Type, "start", b.OnClose)
	if err != nil {
		return nil, err
	}
	if len(b.Stdin) > 0 || b.StdinFrom != "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "stdin: the input of a terminal is what is typed").With("path", "stdin")
	}
	b.TTY = true
	req := b.request(t.call)
	req.OutputLimit = -1 // it is all sent
	x, err := t.client.ExecStream(ctx, req)
	if err != nil {
		return nil, err
	}
	thread := t.thread()
	return &screen{
		keys: x, kill: kill,
		end: func() { t.killProcess(thread, x.Process()) },
		output: func(ctx context.Context) error {
			ready := terminalEvent{Type: "ready", Process: x.Process(), Thread: thread}
			if !x.Queued() {
				if err := t.note(ctx, ready); err != nil {
					return err
				}
			}
			for e, err := range x.Events(ctx) {
				switch {
				case err != nil:
					return err
				case e.Waiting != nil:
					err = t.note(ctx, terminalEvent{Type: "waiting", Process: x.Process(), Error: e.Waiting.Error(), Code: e.Waiting.Code})
				case e.Accepted:
					err = t.note(ctx, ready)
				case e.Chunk != nil:
					err = t.chunk(ctx, *e.Chunk)
				case e.Result != nil:
					err = t.exit(ctx, e.Result)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}, nil
}

func attachTerminal(ctx context.Context, t *terminal, first []byte) (*screen, error) {
	var b terminalAttach
	if err := schemas.DecodeStrict("message", first, &b); err != nil {
		return nil, err
	}
	kill, err := opening(b.Type, "attach", b.OnClose)
	if err != nil {
		return nil, err
	}
	if b.Seq < 0 || (b.Offset != nil && *b.Offset < 0) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "offset: neither it nor seq is negative").With("path", "offset")
	}
	size := schemas.TerminalSize{Rows: cmp.Or(b.Rows, schemas.DefaultRows), Cols: cmp.Or(b.Cols, schemas.DefaultCols)}
	p, err := t.running()
	if err != nil {
		return nil, err
	}
	s := &screen{kill: kill, end: func() { t.killProcess(p.Thread(), p.ID()) }}
	switch a, err := t.client.AttachProcess(ctx, client.AttachRequest{Process: p.ID(), Thread: p.Thread(), Size: size}); {
	case err == nil:
		s.keys = a
	case errors.Is(err, schemas.ErrNotFound):
		if _, ended := p.Result(ctx); ended != nil {
			return nil, err
		}
		s.kill = false
	default:
		return nil, err
	}
	q := client.LogQuery{Follow: true, Tail: int(size.Rows)}
	if b.Offset != nil {
		q = client.LogQuery{Follow: true, From: uint64(b.Seq), StdoutFrom: *b.Offset}
	}
	s.output = func(ctx context.Context) error {
		if err := t.note(ctx, terminalEvent{Type: "ready", Process: p.ID(), Thread: p.Thread()}); err != nil {
			return err
		}
		if err := p.Logs(ctx, q, func(k schemas.Chunk) error { return t.chunk(ctx, k) }); err != nil {
			return err
		}
		r, err := p.Result(ctx)
		if err != nil {
			return err
		}
		return t.exit(ctx, r)
	}
	return s, nil
}

// exit queues the last message.
func (t *terminal) exit(ctx context.Context, r *schemas.Result) error {
	e := terminalEvent{Type: "exit", Process: r.Process, Thread: r.Thread, Offset: &r.StdoutBytes, Exit: &r.ExitCode, Reason: r.Reason}
	if r.Error != nil {
		e.Error, e.Code = r.Error.Error(), r.Error.Code
	}
	return t.note(ctx, e)
}

// killTimeout bounds the kill of a process whose connection has ended.
const killTimeout = 10 * time.Second

// killProcess ends a process whose client has left, also one that is queued.
func (t *terminal) killProcess(thread, process string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.r.Context()), killTimeout)
	defer cancel()
	p, err := t.client.Process(ctx, thread, process)
	if err == nil {
		err = p.Kill(ctx, killGrace)
	} else {
		err = t.client.Cancel(ctx, thread, process)
	}
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		t.g.cfg.Log.Warn().Str("request", t.w.Header().Get(headerRequest)).Str("process", process).Err(err).Msg("http_terminal_kill")
	}
}
