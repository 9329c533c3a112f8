package files

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// maxActive is the most transfers of a worker that have not ended, and maxOfThread of one thread. Each may hold a window of content.
	maxActive   = 64
	maxOfThread = 32
	// maxEnded is the most transfers that have ended and still answer: each may hold a piece of content.
	maxEnded = 128
	// linger is how long a transfer that has ended answers messages that are sent again.
	linger = 10 * time.Second
)

// Config sets up a worker's file operations. All fields are required.
type Config struct {
	Publisher  *publisher.Publisher
	Background *work.Background
	Timeouts   work.Timeouts
	Sessions   *session.Sessions
}

// Files are the transfers of a worker.
type Files struct {
	Config
	working context.Context // ends with Stop
	stop    func()

	mu     sync.Mutex
	all    map[key]*transfer
	active int
}

type key struct{ tenant, thread, transfer string }

// New starts nothing.
func New(cfg Config) *Files {
	fs := &Files{Config: cfg, all: make(map[key]*transfer)}
	fs.working, fs.stop = context.WithCancel(cfg.Background.Context())
	return fs
}

// Stop ends all transfers, and begins no more.
func (fs *Files) Stop() { fs.stop() }

// Handle carries out a message and calls reply, at most once, now or later. A fenced worker calls nothing: the answer is for the thread's
// owner to give.
func (fs *Files) Handle(m schemas.FileMessage, reply func(schemas.FileAnswer)) {
	answer := func(a schemas.FileAnswer) {
		if !fs.Publisher.Fenced() {
			reply(a)
		}
	}
	if err := fs.handle(m, answer); err != nil {
		answer(failed(err))
	}
}

func failed(err error) schemas.FileAnswer {
	return schemas.FileAnswer{Reply: &schemas.FileReply{Error: schemas.AsError(err)}}
}

// handle returns an error where nothing else answers.
func (fs *Files) handle(m schemas.FileMessage, answer func(schemas.FileAnswer)) error {
	k := key{m.Tenant, m.Thread, m.Transfer}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := fs.all[k]
	switch {
	case m.Request == nil && t == nil:
		return schemas.Errorf(schemas.CodeNotFound, "thread %s has no transfer %s: it has ended, or its worker is gone; begin another", m.Thread, m.Transfer)
	case m.Request == nil:
		return t.offer(piece{m, answer})
	case m.Request.Op == schemas.FileCancel:
		if t != nil {
			t.cancel()
			fs.forget(t)
		}
		answer(schemas.FileAnswer{Reply: &schemas.FileReply{}})
		return nil
	case t == nil && m.Request.Again:
		return schemas.Errorf(schemas.CodeNotFound, "thread %s has no transfer %s: whether it was done is unknown", m.Thread, m.Transfer)
	case t == nil:
		var err error
		if t, err = fs.begin(k, m.Request); err != nil {
			return err
		}
	case t.req.Op != m.Request.Op || t.req.Path != m.Request.Path:
		return schemas.Errorf(schemas.CodeConflict, "transfer %s of thread %s is another operation: use a new id", m.Transfer, m.Thread)
	}
	t.heard()
	t.await(answer)
	return nil
}

// begin starts a transfer. mu is held.
func (fs *Files) begin(k key, req *schemas.FileRequest) (*transfer, error) {
	thread := fs.Sessions.Find(k.tenant, k.thread)
	if thread == nil {
		// A request that was sent before this worker gave the thread up still arrives here.
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s does not own thread %s: ask again", fs.Publisher.Worker, k.thread).With(schemas.DetailDeclined, "owner")
	}
	if err := (&session.Request{Session: req.Session}).Fits(&thread.Session); err != nil {
		return nil, err
	}
	ofThread := 0
	for other, t := range fs.all {
		if other.tenant == k.tenant && other.thread == k.thread && !t.ended {
			ofThread++
		}
	}
	if fs.active >= maxActive || ofThread >= maxOfThread {
		return nil, schemas.Errorf(schemas.CodePoolExhausted, "worker %s works on %d files, %d of them of thread %s: try again", fs.Publisher.Worker, fs.active, ofThread, k.thread).With(schemas.DetailDeclined, schemas.DeclinedFull)
	}
	t := &transfer{files: fs, key: k, req: req, thread: thread, pieces: make(chan piece, 2*schemas.MaxFileWindow), began: time.Now()}
	t.life, t.cancel = context.WithCancel(fs.working)
	t.ctx, t.stop = context.WithCancel(t.life)
	t.idle = time.AfterFunc(fs.Timeouts.Silent, t.expire)
	t.idle.Stop() // until open
	if !thread.Enter(t) {
		return nil, schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s is being ended", thread.Session.ID, thread.ID)
	}
	if fs.working.Err() != nil || !fs.Background.Go(t.run) {
		thread.Leave(t)
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", fs.Publisher.Worker).With(schemas.DetailDeclined, "shutdown")
	}
	fs.all[k] = t
	fs.active++
	return t, nil
}

// end counts a transfer as ended, and drops the oldest that has where too many are held.
func (fs *Files) end(t *transfer) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t.ended, t.endedAt = true, time.Now()
	fs.active--
	if len(fs.all)-fs.active <= maxEnded {
		return
	}
	var ended []*transfer
	for _, other := range fs.all {
		if other.ended {
			ended = append(ended, other)
		}
	}
	if len(ended) > 0 {
		oldest := slices.MinFunc(ended, func(a, b *transfer) int { return cmp.Compare(a.endedAt.UnixNano(), b.endedAt.UnixNano()) })
		oldest.cancel()
		fs.forget(oldest)
	}
}

// forget drops a transfer. mu is held.
func (fs *Files) forget(t *transfer) {
	if fs.all[t.key] == t {
		delete(fs.all, t.key)
	}
}
