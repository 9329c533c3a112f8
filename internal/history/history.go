package history

import (
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// History is what is known when all faults are lifted and nothing runs any more.
type History struct {
	// Ops are what clients sent and were answered, each client's in its order.
	Ops []Op
	// Records are the process records of EVT, by sequence. Chunks are the messages of LOG, by sequence.
	Records []Record
	Chunks  []schemas.Chunk
	// Events are all events of EVT, process records too, by sequence.
	Events []Stored
	// Feeds are what followers of EVT and MSG received.
	Feeds []Feed
	// Gaps are the log.gap events by process.
	Gaps map[string][]schemas.LogGap
	// Finished are the processes with an event stream.finished that names no failed hook.
	Finished map[string]bool
	// Messages are those of MSG.
	Messages []*schemas.Message
	// Waiting are the commands in CMD, Dead those in DLQ.
	Waiting, Dead []Command
	// Runs are how often the command of a process began, by the lines that it wrote to a file as its first act.
	Runs map[string]int
	// Faults are those that may cost a worker's processes.
	Faults []Fault
	// Away are the times when a worker was killed, stopped or frozen. Broken are those when a server was, or when a stream, or a consumer
	// of CMD, had no leader that answered.
	Away, Broken []Span
	// LeaseTTL is the workers' lease TTL.
	LeaseTTL time.Duration
	// FirstEvent and FirstChunk are the first sequences that EVT and LOG still have: above 1, the stream has dropped messages.
	FirstEvent, FirstChunk uint64
}

// Stored is an event of EVT.
type Stored struct {
	Seq        uint64
	ID, Thread string
}

// Feed is what one follower of EVT or MSG received from the beginning until all was quiet.
type Feed struct {
	// Name says whose it is.
	Name string
	// Messages says that it followed MSG, else it followed EVT.
	Messages bool
	// Thread is the thread that it followed; empty for all.
	Thread string
	// Seqs are the sequences in the order of their delivery. Restarts is how often the follower ended by an error, and went on after the
	// last of them.
	Seqs     []uint64
	Restarts int
}

// Op is one sending of a command.
type Op struct {
	// Thread, Process and Fingerprint are those of the command. Several Ops of one key have the same process.
	Thread, Process, Fingerprint string
	// Command is the command. Its script writes to the file of runs first.
	Command *schemas.Command
	// Stdout and Stderr are what it prints when nothing stops it, ExitCode how it then ends. They are not known of a message.
	Stdout, Stderr []byte
	ExitCode       int
	// Stopped says that a client canceled or signaled it.
	Stopped bool
	// Canceled is when the ack of its cancel came; zero without one. Only a command that is sent once is canceled.
	Canceled time.Time
	// Durable says that it was only published on cmd. Queued is the sequence of CMD's ack, 0 for none; the ack came at Acked.
	Durable bool
	Queued  uint64
	Acked   time.Time
	// Sent and Answered are times of the client's clock; Answered is zero while there is no answer.
	Sent, Answered time.Time
	// Result is the answer. Code is that of an answer without a result, and "" with one.
	Result *schemas.Result
	Code   schemas.Code
	// Follows says that the client followed the output. Followed is the standard output that it received up to the end.
	Follows  bool
	Followed []byte
	// Chunks are the chunks of it, and Gaps what the follower was said to miss.
	Chunks []FollowedChunk
	Gaps   []schemas.LogGap
}

// FollowedChunk is a chunk of standard output, without its bytes, as a follower received it.
type FollowedChunk struct {
	Seq, Epoch           uint64
	Number, Offset, Size int64
	// First says that the follower had just begun, or gone on after an error.
	First bool
}

// code is that of an answer which is an error, also of a rejection that is not on record.
func (o *Op) code() schemas.Code {
	if o.Result != nil && o.Result.Error != nil && o.Result.Fingerprint == "" {
		return o.Result.Error.Code
	}
	return o.Code
}

func (o *Op) safe() bool { return o.Command.Exec != nil && o.Command.Exec.Retry == schemas.RetrySafe }

// Record is a process record of EVT.
type Record struct {
	schemas.Event
	// Fingerprint and Epoch are those of the record's data.
	Fingerprint string
	Epoch       uint64
	// Result is the data of a terminal record.
	Result schemas.Result
}

// Command is a command as CMD or DLQ stores it.
type Command struct {
	// Seq is its sequence in the stream.
	Seq uint64
	// Process and Fingerprint are those of the command. They are empty when it does not decode.
	Process, Fingerprint string
	// Reason is why it is a dead letter.
	Reason string
}

// Fault is something that may cost a worker's processes.
type Fault struct {
	// Worker is the worker's id.
	Worker string
	// Sandbox says that a sandbox of the worker was attacked, not the worker. Else the worker did nothing between From and To.
	Sandbox bool
	// Stopped says that the worker was asked to end: it ends its processes, and records that when NATS answers.
	Stopped  bool
	From, To time.Time
}

// process is what a history has of one process.
type process struct {
	id, thread string
	ops        []*Op
	records    []*Record
	chunks     []*schemas.Chunk
	messages   []*schemas.Message
	waiting    []*Command
	dead       []*Command
}

// safe reports that a client allowed a second run.
func (p *process) safe() bool {
	for _, o := range p.ops {
		if o.safe() {
			return true
		}
	}
	return false
}

// stopped reports that a client may have ended it.
func (p *process) stopped() bool {
	for _, o := range p.ops {
		if o.Stopped {
			return true
		}
	}
	return false
}

// ran is the op whose command the records are of; nil when no client sent it.
func (p *process) ran() *Op {
	print := p.fingerprint()
	for _, o := range p.ops {
		if o.Fingerprint == print {
			return o
		}
	}
	return nil
}

// ranExec is ran for a command whose output and runs are known: an exec.
func (p *process) ranExec() *Op {
	if o := p.ran(); o != nil && o.Command.Exec != nil {
		return o
	}
	return nil
}

// fingerprint is that of the command on record; empty without a record.
func (p *process) fingerprint() string {
	for _, r := range p.records {
		if r.Fingerprint != "" {
			return r.Fingerprint
		}
	}
	return ""
}

// count counts the records of a type.
func (p *process) count(types ...schemas.EventType) (n int) {
	for _, r := range p.records {
		for _, t := range types {
			if r.Type == t {
				n++
			}
		}
	}
	return n
}

// end is the last record when it is terminal, else nil.
func (p *process) end() *Record {
	if n := len(p.records); n > 0 && p.records[n-1].Type.Terminal() {
		return p.records[n-1]
	}
	return nil
}

// canceled reports that it was canceled before a worker accepted it.
func (p *process) canceled() bool {
	end := p.end()
	return end != nil && end.Type == schemas.TypeProcessRejected && end.Result.Error != nil && end.Result.Error.Code == schemas.CodeCanceled
}

// processes collects what the history has of each process, in the order of its first appearance.
func (h *History) processes() []*process {
	byID := make(map[string]*process)
	var all []*process
	of := func(id, thread string) *process {
		p := byID[id]
		if p == nil {
			p = &process{id: id, thread: thread}
			byID[id] = p
			all = append(all, p)
		}
		return p
	}
	for i := range h.Ops {
		p := of(h.Ops[i].Process, h.Ops[i].Thread)
		p.ops = append(p.ops, &h.Ops[i])
	}
	for i := range h.Records {
		p := of(h.Records[i].Process, h.Records[i].Thread)
		p.records = append(p.records, &h.Records[i])
	}
	for i := range h.Chunks {
		p := of(h.Chunks[i].Process, h.Chunks[i].Thread)
		p.chunks = append(p.chunks, &h.Chunks[i])
	}
	for _, m := range h.Messages {
		p := of(m.Process, m.Thread)
		p.messages = append(p.messages, m)
	}
	for i := range h.Waiting {
		p := of(h.Waiting[i].Process, "")
		p.waiting = append(p.waiting, &h.Waiting[i])
	}
	for i := range h.Dead {
		p := of(h.Dead[i].Process, "")
		p.dead = append(p.dead, &h.Dead[i])
	}
	return all
}

// Busy reports that a process on record has not ended.
func (h *History) Busy() bool {
	open := make(map[string]bool)
	for i := range h.Records {
		open[h.Records[i].Process] = !h.Records[i].Type.Terminal()
	}
	for _, is := range open {
		if is {
			return true
		}
	}
	return false
}
