package processor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// run is a process from its acceptance to its end.
type run struct {
	thread      *thread
	process     string
	exec        *schemas.Exec
	fingerprint string
	low         uint64 // its records come after this sequence
	seq         uint64 // its newest record's
	attempt     int
	input       *input // nil where the process reads nothing

	mu      sync.Mutex
	inboxes []string
	proc    sandbox.Process
	signals []sandbox.Signal // to be sent as soon as it runs
	doomed  bool             // to be killed as soon as it runs
	grace   time.Duration
}

func runKey(tenant, process string) string { return tenant + "." + process }

func (w *Worker) find(tenant, process string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[runKey(tenant, process)]
}

// attach adds a caller who wants to hear of the end.
func (r *run) attach(inbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if inbox != "" {
		r.inboxes = append(r.inboxes, inbox)
	}
}

// kill ends the whole tree, now or as soon as there is one.
func (r *run) kill(grace time.Duration) {
	r.mu.Lock()
	proc := r.proc
	r.doomed, r.grace = true, grace
	r.mu.Unlock()
	if proc != nil {
		_ = proc.Kill(grace) // it fails only where the process has ended
	}
}

// accept writes the process's first record and starts the run. The record comes before the fork: were it the other way
// round, a second worker could fork as well.
func (w *Worker) accept(ctx context.Context, t *thread, d schemas.Delivery, fingerprint string) schemas.Verdict {
	return w.acceptAfter(ctx, t, d, fingerprint, 0)
}

func (w *Worker) acceptAfter(ctx context.Context, t *thread, d schemas.Delivery, fingerprint string, after uint64) schemas.Verdict {
	process := schemas.ProcessID(d.Tenant, d.Thread, d.Command.Key)
	r := &run{thread: t, process: process, exec: d.Command.Exec, fingerprint: fingerprint, attempt: d.Attempt, input: newInput(d.Command.Exec)}
	r.attach(d.Inbox)
	if !w.begin(r) {
		// The same command came both ways at once, and the other one is being accepted.
		if other := w.find(d.Tenant, process); other != nil && other.fingerprint == fingerprint {
			other.attach(d.Inbox)
			return schemas.Verdict{Action: schemas.ActionDone}
		}
		return w.turnDown(&d, stepDecline, "", schemas.Errorf(schemas.CodeUnavailable, "thread %s changes hands: try again", d.Thread))
	}
	acc := schemas.Accepted{Fingerprint: fingerprint, Command: r.exec.Command, TimeoutMS: r.exec.TimeoutMS, Epoch: t.session.Epoch, Retry: r.exec.Retry}
	acc.Args, acc.ArgsTruncated = schemas.ShownArgs(r.exec.Args)
	ev := w.event(schemas.TypeProcessAccepted, d.Tenant, d.Thread, t.session.ID, process, acc)
	seq, err := w.cfg.Records.Append(ctx, ev, after)
	if err != nil {
		w.end(r)
		w.work.Done()
		if errors.Is(err, schemas.ErrConflict) && after == 0 {
			return w.collided(ctx, t, &d, fingerprint, func(after uint64) schemas.Verdict {
				return w.acceptAfter(ctx, t, d, fingerprint, after)
			})
		}
		s := stepRefuse
		if d.Durable || errors.Is(err, schemas.ErrConflict) {
			s = stepDecline
		}
		return w.turnDown(&d, s, "", schemas.AsError(err))
	}
	w.sawSeq(seq)
	r.seq = seq
	w.answer(d.Inbox, ev)
	go func() {
		defer w.work.Done()
		w.execute(r)
	}()
	return schemas.Verdict{Action: schemas.ActionDone}
}

// begin enters a run, so that a second command of its id finds it. false: there is one already, or the worker leaves, or the
// thread was given up.
func (w *Worker) begin(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := runKey(r.thread.tenant, r.process)
	if w.leaving || w.runs[key] != nil || w.threads[threadKey(r.thread.tenant, r.thread.thread)] != r.thread {
		return false
	}
	r.low = w.seq + 1
	w.runs[key] = r
	w.work.Add(1)
	r.thread.begin()
	return true
}

func (w *Worker) end(r *run) {
	w.mu.Lock()
	delete(w.runs, runKey(r.thread.tenant, r.process))
	w.mu.Unlock()
	r.thread.end()
}

// startTimeout bounds the making of a sandbox and the start of a process in it.
const startTimeout = 60 * time.Second

// execute runs an accepted process and records its end.
func (w *Worker) execute(r *run) {
	began := time.Now().UTC()
	result := &schemas.Result{
		Process: r.process, Thread: r.thread.thread, Command: r.exec.Command, Timestamp: began,
		Fingerprint: r.fingerprint, Worker: w.cfg.Worker, Epoch: r.thread.session.Epoch,
	}
	result.Args, result.ArgsTruncated = schemas.ShownArgs(r.exec.Args)
	typ := schemas.TypeProcessExited
	if err := w.runProcess(r, result); err != nil {
		typ = schemas.TypeProcessRejected
		result.Reason, result.ExitCode, result.Error = schemas.ReasonRejected, schemas.ExitSluiceFailed, schemas.AsError(err)
		if start, ok := errors.AsType[*sandbox.StartError](err); ok {
			result.ExitCode = start.Code
			result.Error = schemas.Errorf(schemas.CodeInvalidArgument, "%s", start.Message)
		}
	}
	if result.Reason == schemas.ReasonLost {
		typ = schemas.TypeProcessLost
		result.Error = schemas.Errorf(schemas.CodeLost, "the sandbox of thread %s ended without saying how process %s did: send it with a new key", r.thread.thread, r.process)
	}
	r.input.refuse(r)
	w.finish(r, typ, result)
}

// runProcess starts the process, stores its output and fills in how it ended. An error means that it never ran.
func (w *Worker) runProcess(r *run, result *schemas.Result) error {
	ctx, cancel := context.WithTimeout(w.bg, startTimeout)
	defer cancel()
	sb, err := w.sandbox(ctx, r.thread)
	if err != nil {
		return err
	}
	proc, err := sb.Start(ctx, sandbox.Command{
		ID: r.process, Path: r.exec.Command, Args: r.exec.Args, Env: r.exec.Env, Dir: r.exec.Cwd,
		Stdin: r.exec.StdinOpen || len(r.exec.Stdin) > 0, Timeout: time.Duration(r.exec.TimeoutMS) * time.Millisecond, Grace: time.Duration(r.exec.GraceMS) * time.Millisecond,
	})
	if err != nil {
		return err
	}
	started, err := w.started(r, proc, sb.ID())
	if err != nil {
		return err
	}
	stopInput := r.input.serve(w.bg, r, proc)
	keep, outputErr := w.pump(r, proc, result)
	exit, err := proc.Wait(w.bg)
	stopInput()
	if err != nil {
		return err
	}
	if seq, err := started(w.bg); err == nil {
		w.sawSeq(seq)
		r.seq = seq
	} else {
		w.cfg.Log.Warn().Err(err).Str("command_id", r.process).Msg("started not recorded")
	}
	fill(result, exit)
	result.SetOutput(schemas.Stdout, keep.stdout, exit.Stdout)
	result.SetOutput(schemas.Stderr, keep.stderr, exit.Stderr)
	if outputErr != nil {
		result.Error = schemas.Errorf(schemas.CodeOf(outputErr), "output of process %s could not be stored, and it was killed: %w", r.process, outputErr)
	}
	return nil
}

// started makes the process known to those who want to signal it, and records it without waiting.
func (w *Worker) started(r *run, proc sandbox.Process, sandboxID string) (wait func(context.Context) (uint64, error), err error) {
	r.mu.Lock()
	r.proc = proc
	doomed, grace, signals := r.doomed, r.grace, r.signals
	r.mu.Unlock()
	for _, sig := range signals {
		_ = proc.Signal(sig) // it fails only where the process has ended
	}
	if doomed {
		_ = proc.Kill(grace) // it fails only where the process has ended
	}
	ev := w.event(schemas.TypeProcessStarted, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, schemas.Started{
		Fingerprint: r.fingerprint, Command: r.exec.Command, PID: proc.PID(), Sandbox: sandboxID, Epoch: r.thread.session.Epoch, Retry: r.exec.Retry,
	})
	wait, err = w.cfg.Records.AppendAsync(ev, r.seq)
	if err != nil {
		// The process runs all the same; its end follows on accepted then.
		return func(context.Context) (uint64, error) { return 0, err }, nil
	}
	return wait, nil
}

func fill(r *schemas.Result, e sandbox.Exit) {
	r.Reason, r.ExitCode, r.Signal, r.Killed = e.Reason, e.Code, int(e.Signal), e.Killed
	r.Success = e.Reason == schemas.ReasonExited && e.Code == 0
	if e.Reason == schemas.ReasonLost {
		r.ExitCode = schemas.ExitSluiceFailed
	}
	r.UserMS, r.SystemMS, r.MaxRSSBytes = millis(e.UserTime), millis(e.SystemTime), e.MaxRSS
	if !e.Started.IsZero() {
		r.Timestamp = e.Started.UTC()
		r.DurationMS = millis(e.Ended.Sub(e.Started))
	}
}

// How long a record that cannot be written is tried: answerAfter is when the caller is told anyway.
const (
	answerAfter    = 10 * time.Second
	recordPatience = 10 * time.Minute
)

// finish records the end and tells it to everybody who waits. A caller must never wait for a disk to become free: it gets the
// true result, with the error that it is not on record yet.
func (w *Worker) finish(r *run, typ schemas.EventType, result *schemas.Result) {
	defer w.end(r)
	fit(result, w.cfg.MaxRecord)
	ev := w.event(typ, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, result)
	told := false
	begin := time.Now()
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(recordPatience)), w.bg)
	err := backoff.Retry(func() error {
		if w.isFenced() {
			return backoff.Permanent(schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost", w.cfg.Worker))
		}
		seq, err := w.cfg.Records.Append(w.bg, ev, r.seq)
		switch {
		case err == nil:
			w.sawSeq(seq)
			return nil
		case errors.Is(err, schemas.ErrConflict), errors.Is(err, schemas.ErrTooLarge):
			return backoff.Permanent(err)
		case !told && time.Since(begin) > answerAfter:
			told = true
			unrecorded := *result
			unrecorded.Error = schemas.Errorf(schemas.CodeOf(err), "the process ended as told here, but that is not on record yet: %w", err)
			w.tell(r, w.event(typ, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, &unrecorded))
		}
		return err
	}, policy)
	if err != nil && !w.isFenced() {
		if last, readErr := w.cfg.Records.Last(w.bg, r.thread.tenant, r.thread.thread, r.process); readErr == nil && last.Type.Terminal() {
			ev = last // somebody recorded its end before: that is the truth now
		}
	}
	w.outcome(r, result, err)
	if !told && !w.isFenced() {
		w.tell(r, ev)
	}
}

func (w *Worker) isFenced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fenced
}

func (w *Worker) tell(r *run, ev *schemas.Event) {
	r.mu.Lock()
	inboxes := r.inboxes
	r.inboxes = nil
	r.mu.Unlock()
	for _, inbox := range inboxes {
		w.answer(inbox, ev)
	}
}

// maxLoggedCommand is how much of a command's name a log line repeats.
const maxLoggedCommand = 200

// outcome writes the one log line a command gets.
func (w *Worker) outcome(r *run, result *schemas.Result, err error) {
	line := w.cfg.Log.Info()
	if err != nil {
		line = w.cfg.Log.Warn().Err(err)
	}
	name := "command_executed"
	if !result.Success {
		name = "command_failed"
	}
	command := result.Command
	if len(command) > maxLoggedCommand {
		command = command[:maxLoggedCommand]
	}
	line.Str("command_id", r.process).Str("thread", r.thread.thread).Str("session_id", r.thread.session.ID).Int("attempt", r.attempt).
		Str("command", command).Int("exit_code", result.ExitCode).Str("reason", string(result.Reason)).Float64("duration_ms", result.DurationMS).Msg(name)
}
