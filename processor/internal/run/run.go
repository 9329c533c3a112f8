package run

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Run is a process from its acceptance to its end.
type Run struct {
	thread        *session.Thread
	process       string
	exec          *schemas.Exec
	user          string // who sent the message; empty for another command
	origin        schemas.Origin
	fingerprint   string
	epoch         uint64   // the session's, when the command was accepted
	args          []string // as records show them
	argsTruncated bool
	accepted      *schemas.Event // the first record, written before another command of the key is decided
	entered       time.Time      // when it was accepted
	firstSeq      uint64         // all its records are at or after this sequence
	seq           uint64         // of its newest record
	attempt       int
	input         *input                  // nil when the process reads nothing
	turn          Turn                    // nil when the run answers no message
	message       *schemas.MessageRequest // nil for another command, and for one that an earlier incarnation began
	recorded      bool                    // its end is on record
	reruns        bool                    // the key has an earlier record: LOG may have output of an earlier run
	unsettled     atomic.Bool             // whether its acceptance is on record is not known yet
	ended         chan struct{}           // closed when a run that was resumed has ended; nil for one that this incarnation started
	why           error                   // how the start failed in an earlier incarnation, which may have recorded that; nil when it did not

	mu          sync.Mutex
	inboxes     []string
	notified    bool        // the callers got the end
	acceptTimer *time.Timer // answers the first caller that the command was accepted
	proc        sandbox.Process
	sandbox     sandbox.Sandbox       // of proc
	begun       time.Time             // when the process started; zero before
	signals     []sandbox.Signal      // to send as soon as the process runs
	size        *schemas.TerminalSize // the same, of its terminal
	left        chan struct{}         // closed when the run is none any more; nil until its end is being recorded
	asked       string                // the sandbox that may have started the process; empty for none
	unknown     bool                  // further sandboxes may have started it
	killed      bool                  // by request or by the worker's end, whether it runs yet or not
	spared      bool                  // killed by the worker's end alone
	grace       time.Duration
	cancelStart context.CancelFunc // set while it is being started, or waits for its turn
	queued      bool               // it waits for its turn
	observed    *observation       // nil until a part of the worker watches it
}

func (rs *Runs) newRun(t *session.Thread, d *schemas.Delivery) *Run {
	run := &Run{
		thread: t, process: d.Process, exec: d.Command.Exec,
		fingerprint: d.Fingerprint, epoch: t.Session.Epoch, attempt: d.Attempt, origin: d.Command.Origin,
	}
	if m := d.Command.Message; m != nil {
		run.exec, run.user, run.message = agentExec(t.Template.Agent, m), m.User, m
		run.turn = rs.newTurn(run)
		run.args, run.argsTruncated = schemas.ShownArgs(t.Template.Agent.Command[1:]) // the prompt is in the message history
	} else {
		run.args, run.argsTruncated = schemas.ShownArgs(run.exec.Args)
	}
	run.input = newInput(run.exec)
	run.attach(d.Inbox)
	return run
}

// newTurn makes a turn of the message that the run answers.
func (rs *Runs) newTurn(run *Run) Turn {
	return rs.cfg.NewTurn(Message{Thread: run.thread, Process: run.process, User: run.user, Origin: run.origin, Request: run.message})
}

// agentExec is an agent's command for a prompt.
func agentExec(a *schemas.TemplateAgent, m *schemas.MessageRequest) *schemas.Exec {
	e := &schemas.Exec{Command: a.Command[0], TimeoutMS: m.TimeoutMS, OutputLimit: m.OutputLimit}
	if e.TimeoutMS == 0 {
		e.TimeoutMS = a.TimeoutMS
	}
	stdin := true
	for _, arg := range a.Command[1:] {
		if strings.Contains(arg, schemas.PromptPlaceholder) {
			arg, stdin = strings.ReplaceAll(arg, schemas.PromptPlaceholder, m.Prompt), false
		}
		e.Args = append(e.Args, arg)
	}
	if a.Stdin != nil {
		stdin = *a.Stdin
	}
	if stdin {
		e.Stdin = []byte(m.Prompt)
	}
	return e
}

func (run *Run) ref() schemas.ProcessRef {
	return schemas.ProcessRef{Tenant: run.thread.Tenant, Thread: run.thread.ID, Process: run.process, Epoch: run.epoch}
}

func (run *Run) log(line *zerolog.Event) *zerolog.Event {
	return publisher.LogCommand(line, run.process, run.thread.ID, run.thread.Session.ID, run.attempt)
}

// maxInboxes is how many callers of one process get its end. Further ones find it in the record.
const maxInboxes = 256

// attach adds a caller that gets the end. It reports false when the end was sent already.
func (run *Run) attach(inbox string) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.notified {
		return false
	}
	if inbox != "" && len(run.inboxes) < maxInboxes && !slices.Contains(run.inboxes, inbox) {
		run.inboxes = append(run.inboxes, inbox)
	}
	return true
}

// Kill ends the whole process tree, now or as soon as there is one: SIGTERM, and SIGKILL after grace.
func (run *Run) Kill(grace time.Duration) {
	run.mu.Lock()
	proc := run.proc
	run.killed, run.grace = true, grace
	switch {
	case proc != nil || run.cancelStart == nil:
	case run.queued:
		run.cancelStart()
	default:
		// A start that hangs must not outlive the kill; a process that still starts within grace gets its SIGTERM first.
		time.AfterFunc(grace, run.cancelStart)
	}
	run.mu.Unlock()
	if proc != nil {
		_ = proc.Kill(grace) // it fails only when the process has ended
	}
}

// shutDown is Kill because the worker ends.
func (run *Run) shutDown(grace time.Duration) {
	run.mu.Lock()
	run.spared = run.spared || !run.killed
	run.mu.Unlock()
	run.Kill(grace)
}

func (run *Run) isStarted() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.proc != nil
}

func (run *Run) isKilled() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.killed
}

// queue lets a kill cancel the wait for a turn at once, whatever its grace, and a signal that is meant to end the process too. It
// reports false when one of them came before.
func (run *Run) queue(cancel context.CancelFunc) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.cancelStart, run.queued = cancel, true
	run.killed = run.killed || slices.ContainsFunc(run.signals, endsProcess)
	return !run.killed
}

// starting lets a kill cancel the start. It reports false when the run was killed before.
func (run *Run) starting(cancel context.CancelFunc) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.cancelStart, run.queued = cancel, false
	return !run.killed
}

// started opens the process to signals and kills, and delivers those that came before.
func (run *Run) started(proc sandbox.Process, sb sandbox.Sandbox) {
	run.mu.Lock()
	run.proc, run.sandbox = proc, sb
	if run.begun.IsZero() {
		run.begun = time.Now()
	}
	if run.observed != nil {
		close(run.observed.started)
	}
	killed, grace, signals, size := run.killed, run.grace, run.signals, run.size
	run.mu.Unlock()
	if size != nil {
		_ = proc.Resize(*size) // it fails only when the process has ended
	}
	for _, sig := range signals {
		_ = proc.Signal(sig) // it fails only when the process has ended
	}
	if killed {
		_ = proc.Kill(grace) // it fails only when the process has ended
	}
}

// MaxSignals is how many signals may wait for a process to start.
const MaxSignals = 64

func (run *Run) signal(name string) error {
	sig, err := parseSignal(name)
	if err != nil {
		return err
	}
	run.mu.Lock()
	proc := run.proc
	if proc == nil { // it is being started, or waits for its turn: started delivers the signal
		defer run.mu.Unlock()
		if run.queued && endsProcess(sig) {
			run.killed = true
			run.cancelStart()
			return nil
		}
		if len(run.signals) == MaxSignals {
			return schemas.Errorf(schemas.CodeUnavailable, "process %s is being started, and %d signals wait for it already: try again", run.process, MaxSignals)
		}
		run.signals = append(run.signals, sig)
		return nil
	}
	// The supervisor may answer late: a kill must not have to wait for it.
	run.mu.Unlock()
	return proc.Signal(sig)
}

// resize changes the size of the process's terminal, now or as soon as it runs.
func (run *Run) resize(size schemas.TerminalSize) error {
	if !run.exec.TTY {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			"process %s was started without a terminal (tty, `exec -t`): `sluice logs -f %[1]s` follows its output", run.process)
	}
	run.mu.Lock()
	proc := run.proc
	if proc == nil {
		run.size = &size
	}
	run.mu.Unlock()
	if proc == nil {
		return nil
	}
	return proc.Resize(size)
}

// endsProcess reports whether a signal is meant to end a process. A message that waits for its turn cannot catch it.
func endsProcess(sig sandbox.Signal) bool {
	switch unix.Signal(sig) {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGKILL:
		return true
	default:
		return false
	}
}

// isEnding reports whether the end of the process is being recorded, or is on record.
func (run *Run) isEnding() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.left != nil
}
