package processor

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// reattachment is what is found of an earlier incarnation. Nothing of it happens before all of it is known: a worker that cannot
// begin must leave everything as it is.
type reattachment struct {
	w    *Worker
	then []func()
}

// reattach finds what an earlier incarnation of this worker left running: its sandboxes with their threads, and the processes in
// them whose end is not on record, which count as running from here on. What is not this worker's any more is to be ended. Errors:
// unavailable.
func (w *Worker) reattach(ctx context.Context) (*reattachment, error) {
	f := &reattachment{w: w}
	for name, p := range w.cfg.Providers {
		r, ok := p.(sandbox.Reattacher)
		if !ok {
			continue
		}
		found, err := r.Attach(ctx)
		if err != nil {
			// Its processes are told as lost: whether they still run cannot be found out.
			w.cfg.Log.Warn().Err(err).Str("provider", name).Msg("sandboxes of before cannot be looked for")
			continue
		}
		for _, sb := range found {
			if err := f.takeOver(ctx, name, sb); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// begin goes on with what was found.
func (f *reattachment) begin() {
	for _, do := range f.then {
		f.w.work.Go(do)
	}
}

func (f *reattachment) later(do func()) { f.then = append(f.then, do) }

// takeOver makes a sandbox its thread's again, or ends it.
func (f *reattachment) takeOver(ctx context.Context, provider string, sb sandbox.Attached) error {
	w := f.w
	t, err := w.reclaim(ctx, provider, sb)
	if err != nil {
		return err
	}
	if t == nil {
		w.cfg.Log.Info().Str("sandbox", sb.ID()).Str("thread", sb.Spec().Thread).Msg("sandbox_stale")
		f.later(func() { _ = sb.Terminate(w.bg, 0) }) // what its context cuts short goes on by itself
		return nil
	}
	held, err := sb.Held(ctx)
	if err != nil {
		return nil //nolint:nilerr // it has just ended: what ran in it is told as lost
	}
	for _, h := range held {
		if err := f.takeBack(ctx, t, sb, h); err != nil {
			return err
		}
	}
	w.cfg.Log.Info().Str("sandbox", sb.ID()).Str("thread", t.thread).Str("session_id", t.session.ID).Int("processes", t.running()).Msg("sandbox_reattached")
	return nil
}

// reclaim claims the thread of a sandbox under its next epoch, for that sandbox; nil where the sandbox is nobody's now.
func (w *Worker) reclaim(ctx context.Context, provider string, sb sandbox.Attached) (*thread, error) {
	spec := sb.Spec()
	m, ok := parseMark(spec.Owner)
	if !ok {
		return nil, nil
	}
	key := threadKey(m.Tenant, spec.Thread)
	w.mu.Lock()
	another := w.threads[key] != nil
	w.mu.Unlock()
	s, revision, err := w.cfg.Sessions.Session(ctx, m.Tenant, spec.Thread)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case !m.fits(s, w.cfg.Worker), s.Provider != provider, another:
		return nil, nil
	}
	recipe, err := w.template(s.Template)
	if err != nil {
		return nil, nil //nolint:nilerr // what it was made by is gone from here: so is its owner
	}
	now := time.Now()
	// Its cold start was when the sandbox was made.
	t := &thread{tenant: m.Tenant, thread: spec.Thread, template: recipe, last: now, saved: now, warm: true}
	s.Epoch, s.State, s.Sandbox, s.Parked = s.Epoch+1, schemas.SandboxRunning, sb.ID(), false
	w.stamp(t, s)
	t.session, t.now = *s, *s
	t.making = w.found(t, sb)
	// The mark comes first: were the session's new epoch the only one that is stored, the sandbox would look like another owner's.
	if err := sb.SetOwner(t.mark().String()); err != nil {
		// A full disk, say: now it can be gone on with, after another death it cannot.
		w.cfg.Log.Warn().Err(err).Str("sandbox", sb.ID()).Str("thread", spec.Thread).Msg("mark of a sandbox not stored")
	}
	if t.revision, err = w.cfg.Sessions.SaveSession(ctx, s, revision); err != nil {
		if errors.Is(err, schemas.ErrConflict) {
			err = nil // somebody has claimed it since
		}
		return nil, err
	}
	if err := w.cfg.Subscriptions.Subscribe(ctx, t.tenant, t.thread); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.threads[key] = t
	w.mu.Unlock()
	w.errands.do(func() { w.watch(t, t.making) })
	w.publish(ctx, w.event(schemas.TypeSessionReused, t.tenant, t.thread, s.ID, "", s))
	return t, nil
}

// takeBack goes on with a process that a sandbox holds, or has it forgotten.
func (f *reattachment) takeBack(ctx context.Context, t *thread, sb sandbox.Attached, h sandbox.Held) error {
	w := f.w
	last, err := w.cfg.Records.Last(ctx, t.tenant, t.thread, h.ID)
	is := finding{unknown: errors.Is(err, schemas.ErrNotFound)}
	if err != nil && !is.unknown {
		return err
	}
	var accepted *schemas.Event
	var a schemas.Accepted
	if !is.unknown {
		is.ended, is.foreign = last.Type.Terminal(), last.Source != w.cfg.Worker || epochOf(last) >= t.session.Epoch
	}
	if !is.unknown && !is.ended {
		if accepted, err = w.cfg.History.Accepted(ctx, t.tenant, t.thread, h.ID); err != nil {
			return err
		}
		is.unknown = accepted.Decode(&a) != nil
		is.partial = !h.Ended && !h.StdinClosed && h.Stdin < a.StdinBytes
	}
	switch {
	case resume(is):
		r := newResumed(t, accepted, &a, last, h)
		w.enter(r)
		f.later(func() { w.goOn(r, sb, last.Type == schemas.TypeProcessStarted) })
	case last != nil && last.Type == schemas.TypeProcessExited && !is.foreign:
		return f.finishTalk(ctx, t, sb, h, last)
	default:
		f.later(func() { w.discard(sb, h) })
	}
	return nil
}

// newResumed is the run of a process that another incarnation started.
func newResumed(t *thread, accepted *schemas.Event, a *schemas.Accepted, last *schemas.Event, h sandbox.Held) *run {
	r := &run{
		thread: t, process: h.ID, fingerprint: a.Fingerprint, epoch: a.Epoch, args: a.Args, cut: a.ArgsTruncated,
		exec: &schemas.Exec{
			Command: a.Command, Args: a.Args, TimeoutMS: a.TimeoutMS, Retry: a.Retry, OutputLimit: a.OutputLimit, StdinOpen: a.StdinOpen,
		},
		accepted: accepted, low: accepted.Seq, seq: last.Seq, attempt: 1,
	}
	if a.Op == schemas.OpMessage {
		r.talk = newTalk(t.template, nil, a.User)
		r.talk.begun = true
	}
	if a.StdinOpen || a.StdinBytes > 0 {
		r.input = &input{pieces: make(chan piece, inputDepth), given: true, taken: max(0, h.Stdin-a.StdinBytes), over: h.StdinClosed}
	}
	return r
}

// enter makes a run one of this worker's, so that a signal and a second command of its id find it.
func (w *Worker) enter(r *run) {
	w.mu.Lock()
	w.runs[runKey(r.thread.tenant, r.process)] = r
	w.mu.Unlock()
	r.thread.begin()
	if r.talk != nil {
		r.thread.lineUp(r.talk)
	}
}

// goOn sees a run through that was entered. Where started is not on record yet, it is recorded now.
func (w *Worker) goOn(r *run, sb sandbox.Attached, started bool) {
	w.see(r, func(result *schemas.Result) error { return w.resumeProcess(r, sb, started, result) })
}

// resumeProcess goes on with a process's output from where the log ends, and sees it through. An error is lost.
func (w *Worker) resumeProcess(r *run, sb sandbox.Attached, started bool, result *schemas.Result) error {
	proc, keep, after, err := w.catchUp(r, sb)
	if err != nil {
		return schemas.Errorf(schemas.CodeLost, "process %s ran on while its worker was away, and then its sandbox ended: %w", r.process, err)
	}
	r.running(proc)
	recorded := recording(func(context.Context) (uint64, error) { return r.seq, nil })
	if !started {
		recorded = w.recordStart(r, proc, sb.ID())
	}
	w.cfg.Log.Info().Str("command_id", r.process).Str("thread", r.thread.thread).Str("session_id", r.thread.session.ID).
		Int64("stdout_stored", keep.stdout.came).Int64("stderr_stored", keep.stderr.came).Msg("process_resumed")
	return w.follow(r, proc, recorded, keep, after, result)
}

// catchUp rebuilds from the log what this worker would know had it run the process itself, and takes the process over from there.
// The log is read as long as it takes: without it nobody could tell what comes next.
func (w *Worker) catchUp(r *run, sb sandbox.Attached) (sandbox.Process, *kept, *schemas.LogRange, error) {
	held, err := w.held(r, sb)
	if err != nil {
		return nil, nil, nil, err
	}
	var keep *kept
	var after *schemas.LogRange
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0)), w.bg)
	err = backoff.Retry(func() (err error) {
		keep = w.newKept(r)
		if r.talk != nil {
			r.talk.again()
		}
		after, err = w.cfg.Replay(w.bg, r.ref(), func(stream schemas.Stream, offset int64, p []byte) {
			h := keep.of(stream)
			acked := held.Stdout
			if stream == schemas.Stderr {
				acked = held.Stderr
			}
			// A hole that the sandbox can fill: what stands behind it comes again.
			if offset > h.came && h.came >= acked {
				return
			}
			if offset == h.came {
				r.talk.hear(stream, p)
			}
			h.add(offset, p)
		})
		return err
	}, policy)
	if err != nil {
		return nil, nil, nil, err
	}
	w.mindGap(r, schemas.Stdout, &keep.stdout, held.Stdout)
	w.mindGap(r, schemas.Stderr, &keep.stderr, held.Stderr)
	proc, err := sb.Resume(w.bg, r.process, keep.stdout.came, keep.stderr.came)
	return proc, keep, after, err
}

func (w *Worker) held(r *run, sb sandbox.Attached) (sandbox.Held, error) {
	list, err := sb.Held(w.bg)
	if err != nil {
		return sandbox.Held{}, err
	}
	for _, h := range list {
		if h.ID == r.process {
			return h, nil
		}
	}
	return sandbox.Held{}, schemas.Errorf(schemas.CodeNotFound, "its sandbox does not have it")
}

// mindGap tells of output that neither the log nor the sandbox has: it was dropped after it could not be stored, or has aged out.
func (w *Worker) mindGap(r *run, stream schemas.Stream, h *head, acked int64) {
	h.safe.Store(h.came)
	if acked > h.came {
		w.publish(w.bg, w.event(schemas.TypeLogGap, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, schemas.LogGap{
			Stream: stream, From: h.came, To: acked, Reason: "not in the log, and not held any more",
		}))
	}
}

// discard ends a process that is nobody's, and has its sandbox forget it.
func (w *Worker) discard(sb sandbox.Attached, h sandbox.Held) {
	proc, err := sb.Resume(w.bg, h.ID, h.Stdout, h.Stderr)
	if err != nil {
		return // the sandbox has ended
	}
	// Each of these fails only where the sandbox has ended, which Read tells.
	_ = proc.Kill(0)
	for {
		o, err := proc.Read(w.bg)
		if err != nil {
			break
		}
		_ = proc.Ack(o.Stream, o.Offset+int64(len(o.Data)))
	}
	if _, err := proc.Wait(w.bg); err == nil {
		_ = proc.Release()
	}
}

// running is how many runs of the thread have not ended.
func (t *thread) running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}
