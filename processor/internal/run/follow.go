package run

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// follower takes running processes to their end: it writes their input, stores their output, and fills in how they ended.
type follower struct {
	openOutput func(p schemas.ProcessRef) Opener
	replayLog  func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Stream, int64, []byte)) (Opener, error)
	history    History
	followLog  FollowLog
	publisher  *publisher.Publisher
	background *work.Background
	recorder   *recorder
}

// follow takes a running process to its end. out is the capture of the output that is stored already, and open
// goes on after it.
func (f *follower) follow(run *Run, proc sandbox.Process, recorded recording, out *capture, open Opener, result *schemas.Result) error {
	ctx := f.background.Context()
	if run.exec.StdinFrom != "" {
		run.input.from = &pipe{run: run, source: run.source(), follow: f.followLog}
	}
	stopInput := run.input.serve(ctx, run, proc)
	outputErr := f.pump(run, proc, out, open, result)
	// Only the exit record, or the loss of the sandbox, ends a process: neither the end of its output nor of the worker does.
	exit, err := proc.Wait(context.WithoutCancel(ctx))
	stopInput()
	if err != nil {
		return err
	}
	if seq, err := recorded(ctx); err == nil {
		f.recorder.sawSeq(seq)
		run.seq = seq
	} else if !f.publisher.Fenced() {
		run.log(f.publisher.Log.Warn().Err(err)).Msg("started not recorded")
	}
	fill(result, exit)
	setOutput(result, schemas.Stdout, out.stdout.kept, exit.Stdout)
	setOutput(result, schemas.Stderr, out.stderr.kept, exit.Stderr)
	if exit.Limit != nil {
		result.Error = schemas.AsError(exit.Limit)
	}
	if outputErr != nil {
		f.recorder.reportGap(run, result, schemas.Stdout, out.stdout.stored.Load(), exit.Stdout, outputErr.Error())
		f.recorder.reportGap(run, result, schemas.Stderr, out.stderr.stored.Load(), exit.Stderr, outputErr.Error())
		result.Error = schemas.Errorf(schemas.CodeOf(outputErr), "output of process %s could not be stored, and it was killed: %w", run.process, outputErr)
	}
	if err := run.input.failure(); err != nil && result.Error == nil {
		result.Error, result.Success = err, false
	}
	if outputErr != nil || len(result.Gaps) > 0 {
		result.Success = false // whatever the process made of it
		if result.Error == nil {
			result.Error = schemas.Errorf(schemas.CodeUnavailable, "a part of the output of process %s is missing: %s", run.process, result.Gaps[0].Reason)
		}
	}
	return nil
}

func fill(r *schemas.Result, e sandbox.Exit) {
	r.Reason, r.ExitCode, r.Signal, r.Killed = e.Reason, e.Code, int(e.Signal), e.Killed
	r.Success = e.Reason == schemas.ReasonExited && e.Code == 0
	if e.Reason == schemas.ReasonLost {
		r.ExitCode = schemas.ExitSluiceFailed
	}
	r.UserMS, r.SystemMS, r.MaxRSSBytes = work.Millis(e.UserTime), work.Millis(e.SystemTime), e.MaxRSS
	if !e.Started.IsZero() {
		r.Timestamp = e.Started.UTC()
		r.DurationMS = work.Millis(e.Ended.Sub(e.Started))
	}
}

// capture holds the beginning of a process's output, for its result, and how far all of it is stored.
type capture struct{ stdout, stderr streamCapture }

type streamCapture struct {
	limit  int64
	kept   []byte
	read   int64        // bytes that were added, kept or not
	stored atomic.Int64 // bytes that are in the log
}

// newCapture is empty. Output that no record has would only fill the memory.
func (f *follower) newCapture(run *Run) *capture {
	out, limit := &capture{}, min(run.exec.Limit(), schemas.MaxRecordOutput)
	out.stdout.limit, out.stderr.limit = limit, limit
	return out
}

func (out *capture) of(stream schemas.Stream) *streamCapture {
	if stream == schemas.Stderr {
		return &out.stderr
	}
	return &out.stdout
}

// add keeps what fits into the limit. After a gap it keeps nothing more: the rest would look like what was printed.
func (s *streamCapture) add(offset int64, p []byte) {
	if offset > s.read {
		s.limit = min(s.limit, int64(len(s.kept)))
	}
	s.read = offset + int64(len(p))
	if room := s.limit - int64(len(s.kept)); room > 0 {
		s.kept = append(s.kept, p[:min(room, int64(len(p)))]...)
	}
}

// pump stores what a process prints until it prints no more. Output that cannot be stored ends the process: it must neither
// vanish in silence nor block the process for ever.
func (f *follower) pump(run *Run, proc sandbox.Process, out *capture, open Opener, result *schemas.Result) error {
	ack := func(stream schemas.Stream, offset int64) {
		_ = proc.Ack(stream, offset) // it fails only when the supervisor is gone, which Wait reports
	}
	log := open(func(stream schemas.Stream, offset int64) {
		stored := &out.of(stream).stored
		stored.Store(max(stored.Load(), offset))
		ack(stream, offset)
	}, func(stream schemas.Stream, from, to int64) {
		const reason = "the process printed more than the log holds of one process"
		f.recorder.reportGap(run, new(schemas.Result), stream, from, to, reason)
	})
	var failed error
	for {
		// The process ends its output; the end of the worker must not: what was printed would be unknown.
		o, err := proc.Read(context.WithoutCancel(f.background.Context()))
		if err != nil {
			if !errors.Is(err, io.EOF) && failed == nil {
				failed = err
			}
			break
		}
		out.of(o.Stream).add(o.Offset, o.Data)
		if run.turn != nil {
			run.turn.Write(o.Stream, o.Data)
		}
		if failed == nil {
			// A fenced worker stores nothing more, and leaves the output in the sandbox for the next incarnation.
			if failed = f.publisher.CheckLease(); failed == nil {
				failed = log.Write(o.Stream, o.Offset, o.Data)
			}
			if errors.Is(failed, schemas.ErrLost) {
				break
			}
			if failed != nil {
				run.Kill(0)
			}
		}
		if failed != nil {
			ack(o.Stream, o.Offset+int64(len(o.Data))) // dropped, so that the process can end
		}
	}
	rng, err := log.Close()
	result.Log = rng
	if failed == nil {
		failed = err
	}
	return failed
}

// resume goes on with a process's output from where the log ends, and follows it to its end. An error is lost. When started
// is not on record yet, it is recorded now.
func (f *follower) resume(run *Run, sb sandbox.Attached, started bool, result *schemas.Result) error {
	proc, out, open, err := f.catchUp(run, sb, result)
	if err != nil {
		return schemas.Errorf(schemas.CodeLost, "process %s ran on while its worker was away, and then its sandbox ended: %w", run.process, err)
	}
	run.started(proc, sb)
	recorded := recording(func(context.Context) (uint64, error) { return run.seq, nil })
	if !started {
		recorded = f.recorder.recordStart(run, proc, sb.ID())
	}
	run.log(f.publisher.Log.Info()).Int64("stdout_stored", out.stdout.read).Int64("stderr_stored", out.stderr.read).Msg("process_resumed")
	return f.follow(run, proc, recorded, out, open, result)
}

// catchUp rebuilds from the log what this worker would know had it run the process from the start, and takes the process over from
// there.
func (f *follower) catchUp(run *Run, sb sandbox.Attached, result *schemas.Result) (sandbox.Process, *capture, Opener, error) {
	h, err := f.held(run, sb)
	if err != nil {
		return nil, nil, nil, err
	}
	var out *capture
	open, err := f.replay(run, func() {
		out = f.newCapture(run)
		if run.turn != nil {
			run.turn.Reset()
		}
	}, func(stream schemas.Stream, offset int64, p []byte) {
		s, acked := out.of(stream), h.Stdout
		if stream == schemas.Stderr {
			acked = h.Stderr
		}
		// The sandbox can fill this gap: the output after it comes again.
		if offset > s.read && s.read >= acked {
			return
		}
		if offset == s.read && run.turn != nil {
			run.turn.Write(stream, p)
		}
		s.add(offset, p)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	// Output that neither the log nor the sandbox has was dropped when it could not be stored, or is too old.
	const reason = "neither the log nor the sandbox has it"
	f.recorder.reportGap(run, result, schemas.Stdout, out.stdout.read, h.Stdout, reason)
	f.recorder.reportGap(run, result, schemas.Stderr, out.stderr.read, h.Stderr, reason)
	out.stdout.stored.Store(out.stdout.read)
	out.stderr.stored.Store(out.stderr.read)
	proc, err := sb.Resume(f.background.Context(), run.process, out.stdout.read, out.stderr.read)
	return proc, out, open, err
}

// finishAnswer does what follows the answer to a message whose end is on record: the worker ended before it had done that.
func (f *follower) finishAnswer(run *Run, result *schemas.Result, discard func()) {
	_, err := f.replay(run, run.turn.Reset, func(stream schemas.Stream, _ int64, p []byte) { run.turn.Write(stream, p) })
	if err != nil {
		return // this worker ends too
	}
	run.turn.Finish(result)
	discard()
}

// open goes on after what an earlier run of the process has stored: it counts for the same budget. Most processes have none. Errors:
// those of replay.
func (f *follower) open(run *Run) (Opener, error) {
	if !run.reruns {
		return f.openOutput(run.ref()), nil
	}
	return f.replay(run, func() {}, func(schemas.Stream, int64, []byte) {})
}

// replay reads the output that is in the log, and calls reset before each try. It tries until the worker ends: what comes next
// depends on the log.
func (f *follower) replay(run *Run, reset func(), fn func(schemas.Stream, int64, []byte)) (open Opener, err error) {
	ctx := f.background.Context()
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0)), ctx)
	err = backoff.Retry(func() (err error) {
		reset()
		open, err = f.replayLog(ctx, run.ref(), fn)
		return err
	}, policy)
	return open, err
}

func (f *follower) held(run *Run, sb sandbox.Attached) (sandbox.ProcessState, error) {
	list, err := sb.Processes(f.background.Context())
	if err != nil {
		return sandbox.ProcessState{}, err
	}
	for _, h := range list {
		if h.ID == run.process {
			return h, nil
		}
	}
	return sandbox.ProcessState{}, schemas.Errorf(schemas.CodeNotFound, "its sandbox does not have it")
}

// discard ends a process that belongs to no run, and lets its sandbox forget it.
func (f *follower) discard(sb sandbox.Attached, h sandbox.ProcessState) {
	ctx := f.background.Context()
	proc, err := sb.Resume(ctx, h.ID, h.Stdout, h.Stderr)
	if err != nil {
		return // the sandbox has ended
	}
	// Kill and Ack fail only when the sandbox has ended, which Read reports.
	_ = proc.Kill(0)
	for {
		o, err := proc.Read(ctx)
		if err != nil {
			break
		}
		_ = proc.Ack(o.Stream, o.Offset+int64(len(o.Data)))
	}
	if _, err := proc.Wait(ctx); err == nil {
		_ = proc.Release() // it fails only when the sandbox has ended
	}
}
