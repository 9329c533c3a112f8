package run

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// Records are the write-once records of processes.
type Records interface {
	// Append writes a process's next record after the one at this sequence, 0 for the first, and returns its own. Errors: conflict
	// when another writer was first.
	Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error)
	// AppendAsync is Append without the wait.
	AppendAsync(ev *schemas.Event, after uint64) (wait func(context.Context) (uint64, error), err error)
	// Last reads the newest record. Errors: not_found.
	Last(ctx context.Context, tenant, thread, process string) (*schemas.Event, error)
}

// History reads what was stored of a process.
type History interface {
	// Accepted reads the first record of a process, or of its last run. Errors: not_found.
	Accepted(ctx context.Context, tenant, thread, process string) (*schemas.Event, error)
	// Stored returns what LOG has of a process.
	Stored(ctx context.Context, tenant, thread, process string) (rng *schemas.LogRange, stdout, stderr int64, err error)
}

// Opener starts to store a process's output. It calls stored with the offset up to which a stream is stored, and dropped with what of it
// was dropped again.
type Opener func(stored func(schemas.Stream, int64), dropped func(stream schemas.Stream, from, to int64)) Output

// Output stores a process's output, in order.
type Output interface {
	// Write takes a piece, and blocks while too much is not stored yet. Its error is final.
	Write(stream schemas.Stream, offset int64, p []byte) error
	// Close waits until the last piece is stored, and returns the range of the output in the log.
	Close() (*schemas.LogRange, error)
}

// Policy decides which commands run.
type Policy interface {
	// Check returns nil when a template allows a command. Errors: policy_denied, with the command and the pattern.
	Check(t *schemas.Template, command string, args []string) error
}

// Message is a message that a run answers. Request is nil when an earlier incarnation began the answer.
type Message struct {
	Thread        *session.Thread
	Process, User string
	Origin        schemas.Origin
	Request       *schemas.MessageRequest
}

// Turn is what makes a run the answer to a message: its place among the messages of its thread, and the hooks around it.
type Turn interface {
	// LineUp takes the place after the messages that came before.
	LineUp()
	// Await waits for this place, and runs the hooks before the answer.
	Await(ctx context.Context) error
	// Write takes output of the process; Reset drops what came so far.
	Write(stream schemas.Stream, p []byte)
	Reset()
	// Finish runs the hooks after the answer.
	Finish(result *schemas.Result)
	// Done lets the next message have its turn, once those before have had theirs.
	Done()
}

// Config sets up the runs of a worker. The fields that a worker's configuration has as well mean the same there.
type Config struct {
	Publisher  *publisher.Publisher
	Background *work.Background
	Timeouts   work.Timeouts
	Sessions   *session.Sessions
	// NewTurn makes the turn of a message.
	NewTurn func(Message) Turn

	Records    Records
	History    History
	OpenOutput func(p schemas.ProcessRef) Opener
	Replay     func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Stream, int64, []byte)) (Opener, error)
	FollowLog  FollowLog
	Handover   *Handover
	Policy     Policy // nil: everything is allowed
	Freed      func() // called each time that there is room for one more process
	// Disk returns why the disk of the workspaces has no room for another process; nil when it has. Errors: pool_exhausted.
	Disk func() error

	MaxProcesses                           int
	MaxTenantProcesses, MaxThreadProcesses int
	MaxAttempts                            int
	Temporary                              bool // what an earlier incarnation started is the next one's to end
}

// Runs are the processes that a worker accepted and that have not ended.
type Runs struct {
	cfg        Config
	publisher  *publisher.Publisher
	background *work.Background
	sessions   *session.Sessions
	recorder   *recorder
	follower   *follower

	mu          sync.Mutex
	runs        map[string]*Run // by key
	newestSeq   uint64          // of EVT, that this worker knows of
	recoverFrom uint64          // the first sequence of the oldest process whose end could not be recorded; math.MaxUint64 for none
	leaving     bool
	taken       slots // by runs
	claimed     slots // the same, and those reserved for durable commands whose thread is being claimed

	ending  sync.WaitGroup // runs, and what follows them
	resumed sync.WaitGroup // the same for what a temporary worker leaves to the next one
}

// New starts nothing.
func New(cfg Config) *Runs {
	rs := &Runs{
		cfg: cfg, publisher: cfg.Publisher, background: cfg.Background, sessions: cfg.Sessions,
		runs: make(map[string]*Run), recoverFrom: math.MaxUint64, taken: newSlots(&cfg), claimed: newSlots(&cfg),
	}
	rs.recorder = &recorder{
		records: cfg.Records, history: cfg.History, timeouts: cfg.Timeouts,
		publisher: cfg.Publisher, background: cfg.Background, sawSeq: rs.SawSeq,
	}
	rs.follower = &follower{
		openOutput: cfg.OpenOutput, replayLog: cfg.Replay, history: cfg.History, followLog: cfg.FollowLog,
		publisher: cfg.Publisher, background: cfg.Background, recorder: rs.recorder,
	}
	return rs
}

func key(tenant, process string) string { return tenant + "." + process }

func (rs *Runs) find(tenant, process string) *Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.runs[key(tenant, process)]
}

// look returns the run of a process, nil for none, and what keeps another one out.
func (rs *Runs) look(tenant, thread, process string) (run *Run, leaving, full bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.runs[key(tenant, process)], rs.leaving || rs.publisher.Fenced(), rs.taken.ofThread(tenant, thread) == 0
}

// Running reports whether a process has not ended here.
func (rs *Runs) Running(tenant, process string) bool { return rs.find(tenant, process) != nil }

// Len returns how many processes have not ended.
func (rs *Runs) Len() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return len(rs.runs)
}

// enter adds a run, so that a signal and a second command of its id find it, or returns what keeps it out, and why if that is its sandbox.
// It takes the room in the same step: two threads' commands must not share the last place. waits says that the command waits for room.
func (rs *Runs) enter(run *Run, waits bool) (admission, *schemas.Error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := admission{
		leaving: rs.leaving || rs.publisher.Fenced(),
		// The session may be ending since it was looked up; a later delivery makes a new one.
		unknown: run.thread.Ending(),
		full:    rs.taken.ofThread(run.thread.Tenant, run.thread.ID) == 0,
	}
	var why *schemas.Error
	if a == (admission{}) {
		why = run.thread.TakePlace(waits)
		a.full = why != nil
	}
	if a == (admission{}) {
		a.unknown = !run.thread.Enter(run)
	}
	if a != (admission{}) {
		return a, why
	}
	run.entered, run.firstSeq = time.Now(), rs.newestSeq+1
	rs.put(run)
	rs.ending.Add(1)
	if run.turn != nil {
		run.turn.LineUp()
	}
	return a, nil
}

// put adds a run. mu is held.
func (rs *Runs) put(run *Run) {
	k := key(run.thread.Tenant, run.process)
	if old := rs.runs[k]; old != nil {
		rs.count(old, -1)
	}
	rs.runs[k] = run
	rs.count(run, 1)
}

// count counts the places of a run. mu is held.
func (rs *Runs) count(run *Run, n int) {
	rs.taken.add(run.thread.Tenant, run.thread.ID, n)
	rs.claimed.add(run.thread.Tenant, run.thread.ID, n)
}

func (rs *Runs) leave(run *Run) {
	rs.mu.Lock()
	if k := key(run.thread.Tenant, run.process); rs.runs[k] == run {
		delete(rs.runs, k)
		rs.count(run, -1)
	}
	rs.mu.Unlock()
	run.mu.Lock()
	if run.left != nil {
		close(run.left)
	}
	run.mu.Unlock()
	run.thread.Leave(run)
	rs.cfg.Freed()
}

// Room returns how many more processes there is room for.
func (rs *Runs) Room() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.leaving {
		return 0
	}
	return rs.claimed.free()
}

// RoomFor returns how many more processes of a thread there is room for, of its tenant for an empty thread.
func (rs *Runs) RoomFor(tenant, thread string) int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch {
	case rs.leaving:
		return 0
	case thread == "":
		return rs.claimed.ofTenant(tenant)
	default:
		return rs.claimed.ofThread(tenant, thread)
	}
}

// Shares returns how many places a tenant, and a thread, may have when no other one has any.
func (rs *Runs) Shares() (ofTenant, ofThread int) {
	idle := newSlots(&rs.cfg)
	return idle.ofTenant(""), idle.ofThread("", "")
}

// reserve keeps a place for a durable command while its thread is claimed. It reports false when there is no room.
func (rs *Runs) reserve(tenant, thread string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.claimed.ofThread(tenant, thread) == 0 {
		return false
	}
	rs.claimed.add(tenant, thread, 1)
	return true
}

// unreserve ends what reserve began: the command has its place, or needs none.
func (rs *Runs) unreserve(tenant, thread string) {
	rs.mu.Lock()
	rs.claimed.add(tenant, thread, -1)
	rs.mu.Unlock()
	rs.cfg.Freed()
}

// shortage is why there is no room for a process of a thread.
func (rs *Runs) shortage(tenant, thread string) *schemas.Error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.claimed.shortage(rs.publisher.Worker, tenant, thread)
}

// Leave accepts no more commands.
func (rs *Runs) Leave() {
	rs.mu.Lock()
	rs.leaving = true
	rs.mu.Unlock()
}

// Kill ends everything that runs, and that is not the next worker's. After Leave nothing starts that it misses. What came last ends first:
// the end of a message gives no later one its turn.
func (rs *Runs) Kill(grace time.Duration) {
	runs := runsOf(rs)
	slices.SortFunc(runs, func(a, b *Run) int { return b.entered.Compare(a.entered) })
	for _, run := range runs {
		if !rs.cfg.Temporary || run.ended == nil {
			run.shutDown(grace)
		}
	}
}

func runsOf(rs *Runs) []*Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Collect(maps.Values(rs.runs))
}

// Go runs f, which goes on with what an earlier incarnation started, as a part of the runs.
func (rs *Runs) Go(f func()) {
	if rs.cfg.Temporary {
		rs.resumed.Go(f)
	} else {
		rs.ending.Go(f)
	}
}

// Ended returns a channel that is closed when every run has ended, with what follows it. Of those that a temporary worker has resumed,
// it waits for what was killed on request, and for all once the worker is fenced: they are the next worker's then.
func (rs *Runs) Ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		rs.ending.Wait()
		if rs.publisher.Fenced() {
			rs.resumed.Wait()
		}
		for _, run := range runsOf(rs) {
			if run.ended != nil && run.isKilled() {
				<-run.ended
			}
		}
	}()
	return ended
}

// SawSeq notes a sequence of EVT.
func (rs *Runs) SawSeq(seq uint64) {
	rs.mu.Lock()
	rs.newestSeq = max(rs.newestSeq, seq)
	rs.mu.Unlock()
}

// Unfinished returns how many processes have no end yet, and a sequence of EVT before which this worker left none without one.
func (rs *Runs) Unfinished() (processes int, first uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	first = min(rs.newestSeq+1, rs.recoverFrom)
	for _, run := range rs.runs {
		first = min(first, run.firstSeq)
	}
	return len(rs.runs), first
}

// AllRecorded reports whether the end of every process that has ended is on record.
func (rs *Runs) AllRecorded() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.recoverFrom == math.MaxUint64
}
