package processor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// run is a process from its acceptance to its end.
type run struct {
	thread      *thread
	process     string
	exec        *schemas.Exec
	fingerprint string
	epoch       uint64         // the session's under which it was accepted
	args        []string       // as records show them
	cut         bool           // they are not all there were
	accepted    *schemas.Event // its first record; written before another command of its key is looked at
	low         uint64         // its records come after this sequence
	seq         uint64         // its newest record's
	attempt     int
	input       *input // nil where the process reads nothing
	talk        *talk  // nil where it is no message's
	recorded    bool   // its end is on record

	mu          sync.Mutex
	inboxes     []string
	told        bool        // those who waited were told of the end
	notice      *time.Timer // tells the first of them that it was accepted
	proc        sandbox.Process
	signals     []sandbox.Signal // to be sent as soon as it runs
	doomed      bool             // it was killed, whether it runs yet or not
	grace       time.Duration
	cancelStart context.CancelFunc // set while it is being started, or waits for its turn
	queued      bool               // it waits for its turn
}

func newRun(t *thread, d *schemas.Delivery) *run {
	r := &run{
		thread: t, process: d.Process, exec: d.Command.Exec,
		fingerprint: d.Fingerprint, epoch: t.session.Epoch, attempt: d.Attempt,
	}
	if m := d.Command.Message; m != nil {
		r.exec, r.talk = agentExec(t.template.Agent, m), newTalk(t.template, m, m.User)
		r.args, r.cut = schemas.ShownArgs(t.template.Agent.Command[1:]) // the prompt is in the history
	} else {
		r.args, r.cut = schemas.ShownArgs(r.exec.Args)
	}
	r.input = newInput(r.exec)
	r.attach(d.Inbox)
	return r
}

func runKey(tenant, process string) string { return tenant + "." + process }

func (w *Worker) find(tenant, process string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[runKey(tenant, process)]
}

// maxInboxes is how many callers of one process are told of its end. Further ones find it in the record.
const maxInboxes = 256

// attach adds a caller who wants to hear of the end. false: that was told already.
func (r *run) attach(inbox string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told {
		return false
	}
	if inbox != "" && len(r.inboxes) < maxInboxes && !slices.Contains(r.inboxes, inbox) {
		r.inboxes = append(r.inboxes, inbox)
	}
	return true
}

// kill ends the whole tree, now or as soon as there is one.
func (r *run) kill(grace time.Duration) {
	r.mu.Lock()
	proc := r.proc
	r.doomed, r.grace = true, grace
	switch {
	case proc != nil || r.cancelStart == nil:
	case r.queued:
		r.cancelStart()
	default:
		// A start that hangs must not outlive the kill; one that is on its way gets its SIGTERM first.
		time.AfterFunc(grace, r.cancelStart)
	}
	r.mu.Unlock()
	if proc != nil {
		_ = proc.Kill(grace) // it fails only where the process has ended
	}
}

// starting makes the context of the start one that kill can end. false: it was killed before.
func (r *run) starting(cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelStart, r.queued = cancel, false
	return !r.doomed
}

func (r *run) isDoomed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doomed
}

// execute runs an accepted process and records its end.
func (w *Worker) execute(r *run) {
	w.see(r, func(result *schemas.Result) error { return w.runProcess(r, result) })
}

// see sees a run through: do runs its process, or goes on with it, and fills in how it ended.
func (w *Worker) see(r *run, do func(*schemas.Result) error) {
	if r.talk != nil {
		w.converse(r, do)
		return
	}
	result := w.newResult(r)
	w.conclude(r, result, do(result))
}

func (w *Worker) newResult(r *run) *schemas.Result {
	result := &schemas.Result{
		Process: r.process, Thread: r.thread.thread, Command: r.exec.Command, Timestamp: time.Now().UTC(),
		Fingerprint: r.fingerprint, Worker: w.cfg.Worker, Epoch: r.epoch,
	}
	result.Args, result.ArgsTruncated = r.args, r.cut
	return result
}

// conclude records an end: how a process ended, or err, why it was not seen to run.
func (w *Worker) conclude(r *run, result *schemas.Result, err error) {
	typ := schemas.TypeProcessExited
	if err != nil {
		typ = failed(result, err)
	} else if result.Reason == schemas.ReasonLost {
		typ = schemas.TypeProcessLost
		result.Error = schemas.Errorf(schemas.CodeLost, "the sandbox of thread %s ended without saying how process %s did: send it with a new key", r.thread.thread, r.process)
	}
	r.input.refuse(r)
	if result.Error != nil && result.Error.Code == schemas.CodeLimitExceeded {
		w.publish(w.bg, w.event(schemas.TypeLimitExceeded, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, result.Error))
	}
	w.finish(r, typ, result)
}

// errKilledEarly says that a process was killed before it ran.
var errKilledEarly = errors.New("killed before it was started")

// failed is how the record tells of a process that was not seen to run.
func failed(result *schemas.Result, err error) schemas.EventType {
	start, ofCommand := errors.AsType[*sandbox.StartError](err)
	switch {
	case errors.Is(err, errKilledEarly):
		result.Reason, result.Signal, result.ExitCode = schemas.ReasonKilled, sigKill, schemas.ExitSignalBase+sigKill
		return schemas.TypeProcessExited
	case errors.Is(err, schemas.ErrLost):
		result.Reason, result.ExitCode, result.Error = schemas.ReasonLost, schemas.ExitSluiceFailed, schemas.AsError(err)
		return schemas.TypeProcessLost
	case ofCommand:
		result.Reason, result.ExitCode = schemas.ReasonRejected, start.Code
		result.Error = schemas.Errorf(schemas.CodeInvalidArgument, "%s", start.Message)
	default:
		result.Reason, result.ExitCode, result.Error = schemas.ReasonRejected, schemas.ExitSluiceFailed, schemas.AsError(err)
	}
	return schemas.TypeProcessRejected
}

// sigKill is SIGKILL's number on every system.
const sigKill = 9

// launch starts the process in the thread's sandbox. Errors: errKilledEarly; *sandbox.StartError where the command is at
// fault; lost where nobody can tell whether it ran; else why it did not.
func (w *Worker) launch(r *run) (sandbox.Process, sandbox.Sandbox, error) {
	// The sandbox's start has a deadline of its own, which begins when it does; the command's timeout counts neither.
	waiting, cancel := context.WithCancel(w.bg)
	defer cancel()
	if !r.starting(cancel) {
		return nil, nil, errKilledEarly
	}
	for again := r.exec.Retry == schemas.RetrySafe; ; {
		sb, err := w.sandbox(waiting, r.thread)
		if r.isDoomed() {
			return nil, nil, errKilledEarly
		}
		if err != nil {
			return nil, nil, startError(err)
		}
		ctx, done := context.WithTimeout(waiting, w.cfg.patience.start)
		defer done()
		proc, err := sb.Start(ctx, sandbox.Command{
			ID: r.process, Path: r.exec.Command, Args: r.exec.Args, Env: r.exec.Env, Dir: r.exec.Cwd,
			Stdin: r.exec.StdinOpen || len(r.exec.Stdin) > 0, Timeout: time.Duration(r.exec.TimeoutMS) * time.Millisecond, Grace: time.Duration(r.exec.GraceMS) * time.Millisecond,
		})
		switch {
		case err == nil:
			return proc, sb, nil
		case errors.Is(err, sandbox.ErrEnded) && w.gone(ctx, sb, err) && ctx.Err() == nil:
			// It came between the end of a sandbox and the news of it: the next turn makes another.
		case ctx.Err() == nil && !w.gone(ctx, sb, err):
			return nil, nil, startError(err)
		case ctx.Err() != nil && r.isDoomed():
			return nil, nil, errKilledEarly
		case ctx.Err() == nil && again:
			again = false
		default:
			return nil, nil, schemas.Errorf(schemas.CodeLost,
				"process %s was given to its sandbox, which did not say whether it began (%w): send it with a new key, or with retry \"safe\"", r.process, err)
		}
	}
}

// startError gives an error of a start that did not happen its code.
func startError(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "the sandbox was not ready in time: %w", err)
	case errors.Is(err, context.Canceled):
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox was given up before it was ready: %w", err)
	default:
		return err
	}
}

// gone says whether a start failed because its sandbox ended: whether the process had begun by then is not known.
func (w *Worker) gone(ctx context.Context, sb sandbox.Sandbox, err error) bool {
	if !errors.Is(err, schemas.ErrUnavailable) {
		return false
	}
	wait := time.NewTimer(w.cfg.patience.gone)
	defer wait.Stop()
	select {
	case <-sb.Done():
		return true
	case <-ctx.Done():
		return true
	case <-wait.C:
		return false // it is there, and said no
	}
}

// runProcess starts the process, stores its output and fills in how it ended. An error means that it was not seen to run.
func (w *Worker) runProcess(r *run, result *schemas.Result) error {
	proc, sb, err := w.launch(r)
	if err != nil {
		return err
	}
	r.running(proc)
	return w.follow(r, proc, w.recordStart(r, proc, sb.ID()), w.newKept(r), nil, result)
}

// follow sees a running process through to its end. keep is what is stored of its output already, and after where that stands.
func (w *Worker) follow(r *run, proc sandbox.Process, recorded recording, keep *kept, after *schemas.LogRange, result *schemas.Result) error {
	stopInput := r.input.serve(w.bg, r, proc)
	outputErr := w.pump(r, proc, keep, after, result)
	// Only the exit record, or the loss of the sandbox, ends a process: there is no other way on from here.
	exit, err := proc.Wait(context.WithoutCancel(w.bg))
	stopInput()
	if err != nil {
		return err
	}
	if seq, err := recorded(w.bg); err == nil {
		w.sawSeq(seq)
		r.seq = seq
	} else if !w.isFenced() {
		w.cfg.Log.Warn().Err(err).Str("command_id", r.process).Msg("started not recorded")
	}
	fill(result, exit)
	result.SetOutput(schemas.Stdout, keep.stdout.b, exit.Stdout)
	result.SetOutput(schemas.Stderr, keep.stderr.b, exit.Stderr)
	if exit.Limit != nil {
		result.Error = schemas.AsError(exit.Limit)
	}
	if outputErr != nil {
		w.gaps(r, keep, exit, outputErr)
		result.Error = schemas.Errorf(schemas.CodeOf(outputErr), "output of process %s could not be stored, and it was killed: %w", r.process, outputErr)
	}
	return nil
}

// running makes the process known to those who want to signal it.
func (r *run) running(proc sandbox.Process) {
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
}

// recording waits for a record that is on its way, and tells its sequence.
type recording func(context.Context) (uint64, error)

// recordStart records the start without waiting.
func (w *Worker) recordStart(r *run, proc sandbox.Process, sandboxID string) recording {
	err := error(schemas.ErrLost)
	if !w.isFenced() {
		ev := w.event(schemas.TypeProcessStarted, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, schemas.Started{
			Fingerprint: r.fingerprint, Command: r.exec.Command, PID: proc.PID(), Sandbox: sandboxID, Epoch: r.epoch, Retry: r.exec.Retry,
		})
		var wait recording
		if wait, err = w.cfg.Records.AppendAsync(ev, r.seq); err == nil {
			return wait
		}
	}
	// The process runs all the same; its end follows on accepted then.
	return func(context.Context) (uint64, error) { return 0, err }
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
