package processor

import (
	"context"
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// occasion is what hooks run for.
type occasion struct {
	phase   schemas.Phase
	of      string          // what it is called; empty: by the session and its epoch
	sb      sandbox.Sandbox // nil where there is none
	message *schemas.Message
	usage   *schemas.Usage
}

// runHooks runs the template's hooks for an occasion. Errors: the first critical hook's.
func (w *Worker) runHooks(ctx context.Context, t *thread, o occasion) (failed []string, err error) {
	if w.cfg.Hooks == nil {
		return nil, nil
	}
	s := w.info(t)
	data := schemas.HookData{
		SpecVersion: schemas.Version, Phase: o.phase, Occasion: or(o.of, fmt.Sprintf("%s.%d", s.ID, s.Epoch)),
		Conversation: schemas.Conversation{Tenant: t.tenant, Thread: t.thread, Template: s.Template, User: s.User, Session: s.ID, Epoch: s.Epoch},
		Message:      o.message, Usage: o.usage,
	}
	var run func(context.Context, []string, []byte) error
	if o.sb != nil {
		data.Sandbox = &schemas.SandboxInfo{ID: o.sb.ID(), Provider: s.Provider, State: s.State, Workspace: s.Workspace}
		run = func(ctx context.Context, command []string, stdin []byte) error {
			return runInside(ctx, o.sb, command, stdin)
		}
	}
	return w.cfg.Hooks.Run(ctx, t.template, data, s.Workspace, run)
}

// maxHookOutput is how much of what a failing hook printed its error repeats, in bytes.
const maxHookOutput = 1 << 10

// runInside runs a hook's command in a sandbox and waits for its end. It leaves no record: the hook's events tell of it. Errors:
// invalid_argument for a command that cannot be run or that fails, deadline_exceeded, lost.
func runInside(ctx context.Context, sb sandbox.Sandbox, command []string, stdin []byte) error {
	if len(command) == 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "a hook without a command")
	}
	proc, err := sb.Start(ctx, sandbox.Command{ID: "h" + strings.ToLower(ulid.Make().String()), Path: command[0], Args: command[1:], Stdin: true})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = proc.Kill(0) }) // it fails only where the process has ended
	defer stop()
	feeding, stopFeeding := context.WithCancel(ctx)
	defer stopFeeding()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if proc.WriteStdin(feeding, stdin) == nil {
			_ = proc.CloseStdin() // a hook need not read what it is told
		}
	}()
	var tail []byte
	for {
		// The end of the output is the process's: what is killed ends it as well.
		o, err := proc.Read(context.WithoutCancel(ctx))
		if err != nil {
			break // Wait tells why where it is not the end
		}
		tail = append(tail, o.Data...)
		tail = tail[max(0, len(tail)-maxHookOutput):]
		_ = proc.Ack(o.Stream, o.Offset+int64(len(o.Data))) // it fails only where the supervisor is gone, which Wait tells
	}
	exit, err := proc.Wait(context.WithoutCancel(ctx))
	stopFeeding()
	<-fed
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "%s did not end in time, and was killed", command[0])
	case exit.Reason == schemas.ReasonExited && exit.Code == 0:
		return nil
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "%s ended with exit code %d (%s): %s", command[0], exit.Code, exit.Reason, strings.ToValidUTF8(string(tail), "\uFFFD"))
	}
}
