package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Hooks run a template's hooks at certain points of a session.
type Hooks interface {
	// Run runs the hooks of data.Phase, in order. dir is the workspace's folder on this machine; exec runs a command in the
	// thread's sandbox, and is nil when there is none. err is the first critical failure, after which no further hook ran.
	Run(ctx context.Context, t *schemas.Template, data schemas.HookData, dir string,
		exec func(ctx context.Context, command []string, stdin []byte) error) (schemas.HookOutcome, error)
	// Owed returns the push of a thread's workspace that failed and is tried again; nil for none.
	Owed(tenant, thread string) *schemas.OwedPush
	// Sync stores, restores or lists versions of the workspace in dir; of data, the conversation is used. The reply has what was done, also with
	// an error. Errors: invalid_argument for a template that stores no workspaces, those of the store.
	Sync(ctx context.Context, t *schemas.Template, data schemas.HookData, dir string, req *schemas.SyncRequest) (schemas.SessionReply, error)
}

// Occasion is what hooks run for.
type Occasion struct {
	Phase schemas.Phase
	// ID names the occasion. Default: the session and its epoch.
	ID      string
	Sandbox sandbox.Sandbox // nil for none
	Message *schemas.Message
	Usage   *schemas.Usage
	Origin  schemas.Origin // of the command from which it follows; zero for none
}

// runHooks runs the template's hooks for an occasion. Errors: the first critical hook's.
func (sbs *sandboxes) runHooks(ctx context.Context, t *Thread, o Occasion) (schemas.HookOutcome, error) {
	if sbs.hooks == nil {
		return schemas.HookOutcome{}, nil
	}
	s := sbs.entries.info(t)
	data := schemas.HookData{
		SpecVersion: schemas.Version, Phase: o.Phase, Occasion: cmp.Or(o.ID, fmt.Sprintf("%s.%d", s.ID, s.Epoch)),
		Conversation: schemas.Conversation{
			Tenant: t.Tenant, Thread: t.ID, Template: s.Template, User: s.User, Session: s.ID, Epoch: s.Epoch, From: s.From,
		},
		Message: o.Message, Usage: o.Usage, Origin: o.Origin,
	}
	var exec func(context.Context, []string, []byte) error
	if o.Sandbox != nil {
		data.Sandbox = &schemas.SandboxInfo{ID: o.Sandbox.ID(), Provider: s.Provider, State: s.State, Workspace: o.Sandbox.Home()}
		exec = func(ctx context.Context, command []string, stdin []byte) error {
			return RunCommand(ctx, o.Sandbox, command, o.Origin.Environ(nil), stdin)
		}
	}
	return sbs.hooks.Run(ctx, t.Template, data, s.Workspace, exec)
}

// coldStart runs the hooks of a session's first sandbox on this worker. Errors: the critical hook's.
func (sbs *sandboxes) coldStart(ctx context.Context, t *Thread, a *sandboxAttempt, sb sandbox.Sandbox, took time.Duration) error {
	t.mu.Lock()
	warm := t.warm
	t.mu.Unlock()
	if warm {
		return nil
	}
	begin := time.Now()
	if _, err := sbs.runHooks(ctx, t, Occasion{Phase: schemas.PhaseColdStart, Sandbox: sb, Origin: a.origin}); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return err
		}
		return schemas.Errorf(schemas.CodeOf(err), "the cold start of thread %s failed, and its sandbox was ended: %w", t.ID, err)
	}
	if sbs.hasColdStart(t) {
		sbs.setOwner(t, sb)
	}
	t.mu.Lock()
	t.warm = true
	t.mu.Unlock()
	sbs.entries.update(t, update{event: sbs.entries.event(t, a.origin, schemas.TypeColdStartFinished, schemas.ColdStart{
		Sandbox: a.id, SandboxMS: work.Millis(took), HooksMS: work.Millis(time.Since(begin)), Epoch: t.Session.Epoch,
	})})
	return nil
}

// hasColdStart reports whether hooks have to run before the first command.
func (sbs *sandboxes) hasColdStart(t *Thread) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pulls := t.Template.Sync != nil || t.Template.Workspace != nil
	return !t.warm && sbs.hooks != nil && (pulls || len(t.Template.Hooks[schemas.PhaseColdStart]) > 0)
}

// terminateHooks runs the hooks of a session's end. It returns the names of those that failed, critical or not. Errors: the critical
// one's, and the deadline's.
func (sbs *sandboxes) terminateHooks(ctx context.Context, t *Thread, bound time.Duration) (failed []string, err error) {
	if sbs.hooks == nil || sbs.publisher.Fenced() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	t.mu.Lock()
	a := t.attempt
	if (t.warm || t.stored.Parked) && (a == nil || a.ended()) && commandAtEnd(t.Template) {
		a = sbs.beginLocked(sbs.background.Context(), t, schemas.Origin{}) // it is parked, or its sandbox ended by itself
	}
	o := Occasion{Phase: schemas.PhaseTerminate}
	if t.kept > 0 {
		// Another occasion: what the hooks did at an end that kept the session is out of date.
		o.ID = fmt.Sprintf("%s.%d.%d", t.Session.ID, t.Session.Epoch, t.kept)
	}
	t.mu.Unlock()
	if a != nil {
		// A sandbox that is being created is waited for: its cold start may be pulling what these hooks push.
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		o.Sandbox = a.sandbox
	}
	done, err := sbs.runHooks(ctx, t, o)
	if err != nil || len(done.Failed) > 0 {
		t.log(sbs.publisher.Log.Warn().Err(err)).Strs("failed", done.Failed).Msg("terminate hooks")
	}
	return done.Failed, err
}

// owed is the push of the thread's workspace that failed and is tried again; nil for none.
func (sbs *sandboxes) owed(t *Thread) *schemas.OwedPush {
	if sbs.hooks == nil {
		return nil
	}
	return sbs.hooks.Owed(t.Tenant, t.ID)
}

// commandAtEnd reports whether a hook of a session's end runs in its sandbox.
func commandAtEnd(t *schemas.Template) bool {
	return slices.ContainsFunc(t.Hooks[schemas.PhaseTerminate], func(h schemas.HookSpec) bool { return len(h.Command) > 0 })
}

// maxHookOutput is how many bytes of a failing hook's output its error repeats: the last ones.
const maxHookOutput = 1 << 10

// RunCommand runs a command in a sandbox, such as a hook's, and waits for its end. It leaves no record: the caller reports it.
// Errors: invalid_argument for a command that cannot run or fails, deadline_exceeded, lost.
func RunCommand(ctx context.Context, sb sandbox.Sandbox, command []string, env map[string]string, stdin []byte) error {
	if len(command) == 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the hook has no command")
	}
	proc, err := sb.Start(ctx, sandbox.Command{
		ID: "h" + strings.ToLower(ulid.Make().String()), Path: command[0], Args: command[1:], Env: env, Stdin: true,
	})
	if start, ok := errors.AsType[*sandbox.StartError](err); ok {
		// Not wrapped: it would pass for the error of the command that waits for this one.
		return schemas.Errorf(schemas.CodeInvalidArgument, "%s", start.Error())
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = proc.Kill(0) }) // it fails only when the process has ended
	defer stop()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if proc.WriteStdin(writing, stdin) == nil {
			_ = proc.CloseStdin() // a hook need not read its input
		}
	}()
	var tail []byte
	for {
		// The process ends its output, and a killed process does too: ctx must not cut it short.
		o, err := proc.Read(context.WithoutCancel(ctx))
		if err != nil {
			break // Wait returns the reason when it is not the end
		}
		tail = append(tail, o.Data...)
		tail = tail[max(0, len(tail)-maxHookOutput):]
		_ = proc.Ack(o.Stream, o.Offset+int64(len(o.Data))) // it fails only when the supervisor is gone, which Wait reports
	}
	exit, err := proc.Wait(context.WithoutCancel(ctx))
	stopWriting()
	<-written
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "%s did not end in time, and was killed", command[0])
	case exit.Reason == schemas.ReasonExited && exit.Code == 0:
		return nil
	default:
		output := "it wrote no output"
		if len(tail) > 0 {
			output = strings.ToValidUTF8(string(tail), "\uFFFD")
		}
		return schemas.Errorf(schemas.CodeInvalidArgument, "%s ended with exit code %d (%s): %s", command[0], exit.Code, exit.Reason, output)
	}
}
