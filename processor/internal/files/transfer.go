package files

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/files"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// killGrace is the time in which a process that is ended removes what it has not finished.
	killGrace = time.Second
	// maxReply is the most bytes of a reply in JSON, so that it fits into a message of NATS.
	maxReply = 768 << 10
	// maxOutput is the most output of an operation without content, in bytes: the records of a reply with the longest names.
	maxOutput = 16 << 20
	// maxStderr is the most bytes of an outcome.
	maxStderr = 16 << 10
)

// transfer is one operation. Its goroutine runs it, and then answers messages that are sent again.
type transfer struct {
	files  *Files
	key    key
	req    *schemas.FileRequest
	thread *session.Thread
	pieces chan piece
	life   context.Context // ends with the worker, the session, and the caller's cancel
	cancel func()
	ctx    context.Context // of the operation: ends with life, and when it fails
	stop   func()
	began  time.Time
	idle   *time.Timer // runs while there is content to come or to fetch

	ended   bool // guarded by the mu of Files, with endedAt
	endedAt time.Time

	mu      sync.Mutex
	silent  bool                       // idle has run out
	waiting []func(schemas.FileAnswer) // for opened
	opened  *schemas.FileReply         // the answer to the request; nil before

	// The fields below are of the goroutine.
	proc   sandbox.Process
	rest   []byte // output that is in no piece yet
	stderr []byte

	finished    bool // the outcome below is known
	count, size int64
	failure     error
}

type piece struct {
	schemas.FileMessage
	answer func(schemas.FileAnswer)
}

// offer passes a message on to the goroutine. It drops one when too many wait: the caller will send it again. Errors: too_large.
func (t *transfer) offer(p piece) error {
	t.heard()
	if len(p.Data) > schemas.MaxFilePiece {
		return schemas.Errorf(schemas.CodeTooLarge, "a piece of content has %d bytes: the limit is %d", len(p.Data), schemas.MaxFilePiece)
	}
	select {
	case t.pieces <- p:
	default:
	}
	return nil
}

// heard notes that the caller is there.
func (t *transfer) heard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle.Stop() {
		t.idle.Reset(t.files.Timeouts.Silent)
	}
}

// expire ends a transfer whose caller sends nothing more.
func (t *transfer) expire() {
	t.mu.Lock()
	t.silent = true
	t.mu.Unlock()
	t.stop()
}

// await answers the request once it can be answered.
func (t *transfer) await(answer func(schemas.FileAnswer)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opened != nil {
		answer(schemas.FileAnswer{Reply: t.opened})
		return
	}
	t.waiting = append(t.waiting, answer)
}

// open answers the request. From now on the caller of an operation with content must not be silent for long.
func (t *transfer) open(reply *schemas.FileReply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened = reply
	if reply.Error == nil && (t.req.Op.In() || t.req.Op.Out()) {
		t.idle.Reset(t.files.Timeouts.Silent)
	}
	for _, answer := range t.waiting {
		answer(schemas.FileAnswer{Reply: reply})
	}
	t.waiting = nil
}

// Kill ends the operation; see session.Run.
func (t *transfer) Kill(time.Duration) { t.cancel() }

func (t *transfer) run() {
	defer t.cancel()
	defer t.idle.Stop()
	defer func() {
		t.files.mu.Lock()
		t.files.forget(t)
		t.files.mu.Unlock()
	}()
	err := t.start()
	var last answers
	switch {
	case err != nil:
		last.final = &schemas.FileReply{Error: schemas.AsError(err)}
		t.open(last.final)
	case t.req.Op.In():
		t.open(&schemas.FileReply{})
		last = t.take()
	case t.req.Op.Out():
		t.open(&schemas.FileReply{})
		last = t.give()
	default:
		last.final = t.collect()
		t.open(last.final)
	}
	t.idle.Stop()
	t.thread.Leave(t)
	t.files.end(t)
	t.report(&last)
	t.repeat(&last)
}

// start starts the process in the thread's sandbox, and creates the sandbox when there is none.
func (t *transfer) start() error {
	fs := t.files
	for again := true; ; again = false {
		sb, err := fs.Sessions.Sandbox(t.ctx, t.thread, t.req.Origin)
		if err != nil {
			return session.StartError(err)
		}
		if err := fs.Publisher.CheckLease(); err != nil {
			return err
		}
		cmd, err := files.Command(processID(t.key), sb.Home(), t.req)
		if err != nil {
			return err
		}
		ctx, done := context.WithTimeout(t.ctx, fs.Timeouts.Start)
		t.proc, err = sb.Start(ctx, cmd)
		done()
		if again && errors.Is(err, sandbox.ErrEnded) {
			work.Within(sb.Done(), fs.Timeouts.Gone)
			continue // the next one creates another sandbox
		}
		return files.StartError(err)
	}
}

// finish waits for the end of the process, drops what it still prints, and sets the outcome. Errors: those of files.Outcome and canceled.
func (t *transfer) finish() error {
	if t.finished {
		return t.failure
	}
	t.finished = true
	exit, err := t.drain(t.ctx)
	if t.ctx.Err() != nil { // the process may be stopped, or print without end
		_ = t.proc.Kill(killGrace) // it fails only when the sandbox has ended
		exit, err = t.drain(context.WithoutCancel(t.ctx))
	}
	if t.failure = err; err == nil {
		_ = t.proc.Release() // it fails only when the sandbox has ended
		t.count, t.size, t.failure = files.Outcome(t.stderr, exit)
	}
	if t.failure != nil && t.ctx.Err() != nil {
		t.failure = t.canceled()
	}
	return t.failure
}

// drain drops the output up to the end of the process.
func (t *transfer) drain(ctx context.Context) (sandbox.Exit, error) {
	for {
		if _, err := t.read(ctx); err != nil {
			return t.proc.Wait(ctx)
		}
		t.rest = nil
	}
}

// kill ends the process, which removes what it has not finished.
func (t *transfer) kill() {
	t.stop()
	_ = t.finish() // it was killed
}

// read adds the next output to rest or stderr, and returns how much it added to rest. It returns io.EOF at the end.
func (t *transfer) read(ctx context.Context) (int, error) {
	for {
		out, err := t.proc.Read(ctx)
		if err != nil {
			return 0, err
		}
		_ = t.proc.Ack(out.Stream, out.Offset+int64(len(out.Data))) // it fails only when the sandbox has ended, which Wait reports
		if out.Stream == schemas.Stdout {
			t.rest = append(t.rest, out.Data...)
			return len(out.Data), nil
		}
		t.stderr = append(t.stderr, out.Data[:min(len(out.Data), maxStderr-len(t.stderr))]...)
	}
}

// collect reads the output of an operation that gives no content, up to its end.
func (t *transfer) collect() *schemas.FileReply {
	for {
		_, err := t.read(t.ctx)
		switch {
		case errors.Is(err, io.EOF):
			return t.reply(t.rest)
		case err != nil:
			t.kill()
			return &schemas.FileReply{Error: t.canceled()}
		case len(t.rest) > maxOutput:
			t.kill()
			return &schemas.FileReply{Error: tooMuch()}
		}
	}
}

// tooMuch is the error of output that is not that of the program for files: a process of the sandbox has interfered.
func tooMuch() *schemas.Error {
	return schemas.Errorf(schemas.CodeInternal, "the operation printed more than it can have found: a process in the sandbox interferes with it")
}

// reply is the reply after the end of the process, which has printed these records.
func (t *transfer) reply(records []byte) *schemas.FileReply {
	if err := t.finish(); err != nil {
		return &schemas.FileReply{Error: schemas.AsError(err)}
	}
	r := &schemas.FileReply{Files: t.count, Bytes: t.size}
	most := schemas.MaxFileEntries
	if t.req.Limit > 0 {
		most = int(min(t.req.Limit, schemas.MaxFileEntries))
	}
	r.Entries, records = files.Entries(records, most)
	r.Truncated = len(records) > 0
	for body, err := json.Marshal(r); err == nil && len(body) > maxReply; body, err = json.Marshal(r) {
		r.Entries, r.Truncated = r.Entries[:len(r.Entries)/2], true
	}
	return r
}

// canceled is the error of an operation that something outside ended.
func (t *transfer) canceled() *schemas.Error {
	switch {
	case t.thread.Ending():
		return schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s was ended during the operation", t.thread.Session.ID, t.thread.ID)
	case t.files.working.Err() != nil:
		return schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", t.files.Publisher.Worker)
	case t.isSilent():
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "no message came for %s: transfer %s was ended", t.files.Timeouts.Silent, t.key.transfer)
	default:
		return schemas.Errorf(schemas.CodeCanceled, "the caller has ended transfer %s", t.key.transfer)
	}
}

func (t *transfer) isSilent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.silent
}

// next waits for a message of the operation, until that ends.
func (t *transfer) next() (piece, bool) {
	select {
	case p := <-t.pieces:
		return p, true
	case <-t.ctx.Done():
		return piece{}, false
	}
}
