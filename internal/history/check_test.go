package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// planted is a history that keeps every promise, for a test to break one.
type planted struct {
	History
	seq uint64 // of EVT and LOG: one counter orders both
	now time.Time
}

const leaseTTL = 10 * time.Second

// newPlanted has a thread with a direct command, two queued ones and one with a second run, a message, and a key that was used twice.
func newPlanted() *planted {
	h := &planted{now: time.Unix(1000, 0)}
	h.Gaps, h.Finished, h.Runs = map[string][]schemas.LogGap{}, map[string]bool{}, map[string]int{}
	h.FirstEvent, h.FirstChunk, h.LeaseTTL = 1, 1, leaseTTL
	for _, key := range []string{"direct", "first", "second"} {
		o := h.send(key, execOf("echo "+key))
		o.Stdout, o.Stderr = []byte("out of "+key), []byte("err of "+key)
		h.accept(o, 1)
		h.Runs[o.Process]++
		h.print(o, schemas.Stdout, 0, 1, o.Stdout[:3])
		h.print(o, schemas.Stderr, 0, 2, o.Stderr)
		h.print(o, schemas.Stdout, 3, 3, o.Stdout[3:])
		h.exit(o)
		o.Follows, o.Followed = true, o.Stdout
	}
	for i, key := range []string{"first", "second"} {
		h.op(key).Durable, h.op(key).Queued = true, uint64(i+1)
	}
	again := h.send("direct", execOf("echo direct")) // the same command again, and then another one with its key
	again.Stdout, again.Stderr, again.Result = h.Ops[0].Stdout, h.Ops[0].Stderr, h.Ops[0].Result
	h.send("direct", execOf("echo another")).Code = schemas.CodeConflict
	safe := h.send("safe", &schemas.Exec{Command: "safe", Retry: schemas.RetrySafe})
	h.accept(safe, 1)
	h.lose(safe)
	h.accept(safe, 2)
	h.exit(safe)
	h.Runs[safe.Process] = 2
	h.Faults = []Fault{{Worker: "w1", From: time.Unix(1000, 0), To: h.now}}
	m := h.send("message", nil)
	h.accept(m, 2)
	h.exit(m)
	h.Finished[m.Process] = true
	for _, role := range schemas.Roles() {
		h.seq++
		h.Messages = append(h.Messages, &schemas.Message{Thread: "t", Process: m.Process, Role: role, Seq: h.seq})
	}
	for i := range h.Records {
		ev := &h.Records[i].Event
		h.Events = append(h.Events, Stored{ev.Seq, fmt.Sprint("e", ev.Seq), "t"})
	}
	h.Feeds = []Feed{{Name: "events"}, {Name: "events of t", Thread: "t"}, {Name: "events of other", Thread: "other"}, {Name: "messages", Messages: true, Thread: "t"}}
	for i := range h.Feeds {
		h.Feeds[i].Seqs = h.stored(&h.Feeds[i])
	}
	return h
}

func execOf(line string) *schemas.Exec {
	return &schemas.Exec{Command: "sh", Args: []string{"-c", line}}
}

// send adds a sending of a command, which is answered. No exec is a message.
func (h *planted) send(key string, e *schemas.Exec) *Op {
	cmd := &schemas.Command{SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: "t", Key: key, Exec: e}
	if e == nil {
		cmd.Op, cmd.Message = schemas.OpMessage, &schemas.MessageRequest{Prompt: "hello"}
	}
	h.Ops = append(h.Ops, Op{
		Thread: "t", Process: schemas.ProcessID("default", "t", key), Fingerprint: cmd.Fingerprint(), Command: cmd, Sent: h.now, Answered: h.now,
	})
	return &h.Ops[len(h.Ops)-1]
}

// op is the first sending with a key.
func (h *planted) op(key string) *Op {
	for i := range h.Ops {
		if h.Ops[i].Command.Key == key {
			return &h.Ops[i]
		}
	}
	return nil
}

func (h *planted) record(o *Op, typ schemas.EventType, epoch uint64) *Record {
	h.seq++
	h.now = h.now.Add(time.Second)
	h.Records = append(h.Records, Record{
		Event:       schemas.Event{Type: typ, Thread: o.Thread, Process: o.Process, Session: "s", Source: "w1", Seq: h.seq, Stored: h.now},
		Fingerprint: o.Fingerprint, Epoch: epoch,
	})
	return &h.Records[len(h.Records)-1]
}

func (h *planted) accept(o *Op, epoch uint64) {
	h.record(o, schemas.TypeProcessAccepted, epoch)
	h.record(o, schemas.TypeProcessStarted, epoch)
}

func (h *planted) end(o *Op, typ schemas.EventType, reason schemas.Reason) *Record {
	epoch := h.Records[len(h.Records)-1].Epoch
	r := h.record(o, typ, epoch)
	r.Result = schemas.Result{
		Process: o.Process, Thread: "t", Reason: reason, Fingerprint: o.Fingerprint, Epoch: epoch, Worker: "w1", Timestamp: h.now,
		Stdout: string(o.Stdout), StdoutBytes: int64(len(o.Stdout)), Stderr: string(o.Stderr), StderrBytes: int64(len(o.Stderr)),
	}
	if len(o.Stdout) > 0 {
		r.Result.Log = &schemas.LogRange{FirstSeq: 1, LastSeq: h.seq}
	}
	o.Result = new(schemas.Result)
	*o.Result = r.Result
	return r
}

func (h *planted) exit(o *Op) { h.end(o, schemas.TypeProcessExited, schemas.ReasonExited) }

func (h *planted) lose(o *Op) {
	h.end(o, schemas.TypeProcessLost, schemas.ReasonLost).Result.Error = schemas.Errorf(schemas.CodeLost, "lost")
}

func (h *planted) print(o *Op, s schemas.Stream, offset, number int64, data []byte) {
	h.seq++
	epoch := h.find(o.Command.Key, schemas.TypeProcessAccepted).Epoch
	h.Chunks = append(h.Chunks, schemas.Chunk{
		Seq: h.seq, Thread: "t", Process: o.Process, Stream: s, Offset: offset, Number: number, Epoch: epoch, Data: data,
	})
}

// cancel adds a queued command that is canceled.
func (h *planted) cancel(key string) *Op {
	o := h.send(key, execOf(key))
	o.Stopped, o.Durable, o.Queued, o.Canceled = true, true, 1, h.now
	h.end(o, schemas.TypeProcessRejected, schemas.ReasonRejected).Result.Error = schemas.Errorf(schemas.CodeCanceled, "canceled")
	return o
}

// find is the record of this type of the command with this key.
func (h *planted) find(key string, typ schemas.EventType) *Record {
	for i := range h.Records {
		if h.Records[i].Process == h.op(key).Process && h.Records[i].Type == typ {
			return &h.Records[i]
		}
	}
	return nil
}

func (h *planted) dropRecords(key string, types ...schemas.EventType) {
	h.Records = slices.DeleteFunc(h.Records, func(r Record) bool {
		return r.Process == h.op(key).Process && slices.Contains(types, r.Type)
	})
}

func (h *planted) dropChunk(key string, number int64) {
	h.Chunks = slices.DeleteFunc(h.Chunks, func(k schemas.Chunk) bool {
		return k.Process == h.op(key).Process && k.Number == number
	})
}

// command is the op as a queue stores it.
func command(o *Op) Command { return Command{Seq: 9, Process: o.Process, Fingerprint: o.Fingerprint} }

// dropBeginning has LOG drop the first chunks of "second", which ran on under another worker, whose result says that stdout begins at from.
func (h *planted) dropBeginning(from int64, chunks ...int64) {
	for _, n := range chunks {
		h.dropChunk("second", n)
	}
	h.FirstChunk = 2
	h.find("second", schemas.TypeProcessExited).Result.Log = &schemas.LogRange{FirstSeq: 3, LastSeq: h.seq, StdoutFrom: from}
}

func TestCheckFindsWhatIsPlanted(t *testing.T) {
	for name, test := range map[string]struct {
		plant func(*planted)
		want  []Kind
	}{
		"nothing": {func(*planted) {}, nil},
		"a beginning that the result says is dropped": {func(h *planted) { h.dropBeginning(3, 1) }, nil},
		"a beginning that no result says is dropped":  {func(h *planted) { h.dropBeginning(0, 1) }, []Kind{Hole}},
		"more dropped than the result says":           {func(h *planted) { h.dropBeginning(1, 1) }, []Kind{Hole}},
		"a second run":                                {func(h *planted) { h.Runs[h.op("first").Process]++ }, []Kind{DoubleRun}},
		"too many safe runs":                          {func(h *planted) { h.Runs[h.op("safe").Process] = 5 }, []Kind{DoubleRun}},
		"a second acceptance": {func(h *planted) {
			h.accept(h.op("direct"), 2)
			h.exit(h.op("direct"))
		}, []Kind{DoubleAccept}},
		"a second command on record": {func(h *planted) {
			h.find("direct", schemas.TypeProcessStarted).Fingerprint = "f"
		}, []Kind{DoubleAccept, DoubleAccept}},
		"a second end":           {func(h *planted) { h.exit(h.op("message")) }, []Kind{DoubleEnd}},
		"a dead letter that ran": {func(h *planted) { h.Dead = []Command{command(h.op("first"))} }, []Kind{DoubleEnd}},
		"a dead letter after a rejection that may pass": {func(h *planted) {
			o := h.send("full", execOf("full"))
			h.end(o, schemas.TypeProcessRejected, schemas.ReasonRejected).Result.Error = schemas.Errorf(schemas.CodeUnavailable, "disk")
			h.Dead = []Command{command(o)}
		}, nil},
		"an end without an acceptance": {func(h *planted) {
			h.dropRecords("message", schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
		}, []Kind{BrokenChain}},
		"a lost command": {func(h *planted) {
			o := h.send("gone", execOf("gone"))
			o.Queued, o.Code = 3, schemas.CodeUnavailable
		}, []Kind{LostCommand}},
		"a command in CMD":  {func(h *planted) { h.Waiting = []Command{command(h.send("late", execOf("late")))} }, []Kind{StuckCommand}},
		"an answer too few": {func(h *planted) { h.op("direct").Answered = time.Time{} }, []Kind{MissingAnswer}},
		"a run off record":  {func(h *planted) { h.Runs[h.send("off", execOf("off")).Process] = 1 }, []Kind{RejectedRun}},
		"a rejected run": {func(h *planted) {
			o := h.send("no", execOf("no"))
			h.end(o, schemas.TypeProcessRejected, schemas.ReasonRejected).Result.Error = schemas.Errorf(schemas.CodeInternal, "no")
			h.Runs[o.Process] = 1
		}, []Kind{RejectedRun}},
		"a canceled command":          {func(h *planted) { h.cancel("canceled") }, nil},
		"a canceled command that ran": {func(h *planted) { h.Runs[h.cancel("canceled").Process] = 1 }, []Kind{CanceledRan}},
		"a canceled command that was accepted later": {func(h *planted) {
			o := h.send("late", execOf("late"))
			o.Stopped, o.Canceled = true, h.now.Add(-cancelTime)
			h.accept(o, 2)
			h.exit(o)
			h.Runs[o.Process] = 1
		}, []Kind{CanceledRan}},
		"an acceptance at the time of a cancel": {func(h *planted) {
			o := h.send("late", execOf("late"))
			o.Stopped, o.Canceled = true, h.now
			h.accept(o, 2)
			h.exit(o)
			h.Runs[o.Process] = 1
		}, nil},
		"an end without a run": {func(h *planted) { delete(h.Runs, h.op("first").Process) }, []Kind{PhantomRun}},
		"another command's result": {func(h *planted) {
			h.Ops[4].Code, h.Ops[4].Result = "", h.Ops[0].Result
		}, []Kind{ReusedKey}},
		"another end than the record's": {func(h *planted) {
			r := *h.op("safe").Result
			r.Epoch = 1
			h.op("safe").Result = &r
		}, []Kind{WrongAnswer}},
		"a rejection as a conflict with itself": {func(h *planted) {
			h.op("first").Result = &schemas.Result{Reason: schemas.ReasonRejected, Error: schemas.KeyConflict("t")}
		}, []Kind{WrongAnswer}},
		"a conflict with itself": {func(h *planted) { h.Ops[3].Code, h.Ops[3].Result = schemas.CodeConflict, nil }, []Kind{WrongAnswer}},
		"another exit code":      {func(h *planted) { h.op("direct").ExitCode, h.Ops[3].ExitCode = 7, 7 }, []Kind{WrongAnswer, WrongAnswer}},
		"rejected and accepted": {func(h *planted) {
			h.op("first").Durable, h.op("first").Queued = false, 0
			h.op("first").Result = &schemas.Result{Reason: schemas.ReasonRejected, Error: schemas.Errorf(schemas.CodePoolExhausted, "full")}
		}, []Kind{WrongAnswer}},
		"a record of an earlier owner": {func(h *planted) { h.find("safe", schemas.TypeProcessExited).Epoch = 1 }, []Kind{StaleEpoch}},
		"an acceptance of an earlier owner": {func(h *planted) {
			o := h.send("stale", execOf("stale"))
			h.record(o, schemas.TypeProcessAccepted, 1)
			h.end(o, schemas.TypeProcessExited, schemas.ReasonExited)
			h.Runs[o.Process] = 1
		}, []Kind{StaleEpoch}},
		"two owners in one epoch": {func(h *planted) { h.find("message", schemas.TypeProcessAccepted).Source = "w2" }, []Kind{StaleEpoch}},
		"a chunk of an earlier owner": {func(h *planted) {
			for i := range h.Chunks {
				h.Chunks[i].Epoch = 2
			}
			h.Chunks[2].Epoch = 1
		}, []Kind{StaleEpoch}},
		"a hole":        {func(h *planted) { h.dropChunk("first", 1) }, []Kind{Hole}},
		"a missing end": {func(h *planted) { h.dropChunk("first", 3) }, []Kind{Hole}},
		"a hole on record": {func(h *planted) {
			h.dropChunk("first", 1)
			h.Gaps[h.op("first").Process] = []schemas.LogGap{{To: 3}}
		}, nil},
		"a hole that was mended": {func(h *planted) { // chunks 2 and 3 follow a hole; then all are stored again
			o := h.op("first")
			h.dropChunk("first", 1)
			h.print(o, schemas.Stdout, 0, 1, o.Stdout[:3])
			h.print(o, schemas.Stderr, 0, 2, o.Stderr)
			h.print(o, schemas.Stdout, 3, 3, o.Stdout[3:])
			o.Result.Log.LastSeq = h.seq
			h.find("first", schemas.TypeProcessExited).Result.Log.LastSeq = h.seq
		}, nil},
		"a chunk stored twice": {func(h *planted) {
			o := h.op("first")
			h.print(o, schemas.Stdout, 3, 3, o.Stdout[3:])
			h.find("first", schemas.TypeProcessExited).Result.Log.LastSeq = h.seq
		}, []Kind{Duplicate}},
		"a chunk that a frozen server stored late": {func(h *planted) {
			o := h.op("first")
			h.print(o, schemas.Stdout, 3, 3, o.Stdout[3:])
			at := h.find("first", schemas.TypeProcessExited).Stored
			h.Broken = []Span{{From: at.Add(-time.Millisecond), To: at.Add(time.Second)}}
		}, nil},
		"other output that a frozen server stored late": {func(h *planted) {
			h.print(h.op("first"), schemas.Stdout, 3, 3, []byte("not this"))
			at := h.find("first", schemas.TypeProcessExited).Stored
			h.Broken = []Span{{From: at.Add(-time.Millisecond), To: at.Add(time.Second)}}
		}, []Kind{WrongOutput}},
		"a chunk after the end": {func(h *planted) {
			h.find("first", schemas.TypeProcessExited).Result.Log.LastSeq = h.Chunks[4].Seq
		}, []Kind{LateOutput}},
		"other output":              {func(h *planted) { h.Chunks[0].Data = []byte("xyz") }, []Kind{WrongOutput}},
		"other output in an answer": {func(h *planted) { h.op("first").Result.Stdout = "xyz of first" }, []Kind{WrongOutput}},
		"a short answer":            {func(h *planted) { h.op("first").Result.Stdout = "out" }, []Kind{Hole}},
		"a follower with a hole":    {func(h *planted) { h.op("first").Followed = []byte("out") }, []Kind{Hole}},
		"a follower with a repetition": {func(h *planted) {
			h.op("first").Followed = []byte("outout of first")
		}, []Kind{WrongOutput}},
		"a follower without an event":         {func(h *planted) { h.Feeds[0].Seqs = slices.Delete(h.Feeds[0].Seqs, 3, 4) }, []Kind{FeedHole}},
		"a follower without the last message": {func(h *planted) { h.Feeds[3].Seqs = h.Feeds[3].Seqs[:1] }, []Kind{FeedHole}},
		"an event delivered twice": {func(h *planted) {
			h.Feeds[1].Seqs = append(h.Feeds[1].Seqs, h.Feeds[1].Seqs[len(h.Feeds[1].Seqs)-1])
		}, []Kind{FeedDisorder}},
		"an event delivered late":  {func(h *planted) { s := h.Feeds[1].Seqs; s[0], s[1] = s[1], s[0] }, []Kind{FeedDisorder}},
		"an event stored twice":    {func(h *planted) { h.Events[1].ID = h.Events[0].ID }, []Kind{DoubleEvent}},
		"the wrong order":          {func(h *planted) { h.op("first").Queued = 3 }, []Kind{Disorder}},
		"a prompt too few":         {func(h *planted) { h.Messages = h.Messages[1:] }, []Kind{LostMessage}},
		"an answer in MSG too few": {func(h *planted) { h.Messages = h.Messages[:1] }, []Kind{LostMessage}},
		"a prompt twice":           {func(h *planted) { h.Messages = append(h.Messages, h.Messages[0]) }, []Kind{Duplicate}},
		"an evicted record":        {func(h *planted) { h.FirstEvent = 2 }, []Kind{Eviction}},
		"a loss without a fault":   {func(h *planted) { h.Faults = nil }, []Kind{NeedlessLoss}},
		"an acceptance that an outage ended": {func(h *planted) {
			lost := h.find("safe", schemas.TypeProcessLost)
			h.Faults, h.Broken = nil, []Span{{From: lost.Stored.Add(-time.Second), To: lost.Stored}}
			started := h.find("safe", schemas.TypeProcessStarted)
			h.Records = slices.DeleteFunc(h.Records, func(r Record) bool { return r.Seq == started.Seq })
		}, []Kind{NeedlessLoss}},
		"a start that an outage ended": {func(h *planted) {
			lost := h.find("safe", schemas.TypeProcessLost)
			h.Faults, h.Broken = nil, []Span{{From: lost.Stored.Add(-time.Second), To: lost.Stored}}
		}, []Kind{NeedlessLoss}},
		"a stop during an outage": {func(h *planted) {
			f := &h.Faults[0]
			lost := h.find("safe", schemas.TypeProcessLost).Stored
			f.From, f.To, f.Stopped = lost.Add(-time.Millisecond), lost, true
			h.Broken = []Span{{From: f.From.Add(-time.Second), To: f.From.Add(time.Millisecond)}}
		}, nil},
		"a stop after an outage": {func(h *planted) {
			f := &h.Faults[0]
			lost := h.find("safe", schemas.TypeProcessLost).Stored
			f.From, f.To, f.Stopped = lost.Add(-time.Millisecond), lost, true
			h.Broken = []Span{{From: f.From.Add(-time.Second), To: f.From.Add(-time.Millisecond)}}
		}, []Kind{NeedlessLoss}},
		"a loss after a moment": {func(h *planted) { h.Faults[0].From = h.Faults[0].To.Add(-time.Second) }, []Kind{NeedlessLoss}},
		"no end": {func(h *planted) {
			o := h.send("open", execOf("open"))
			h.accept(o, 2)
			h.Runs[o.Process] = 1
		}, []Kind{Unfinished}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newPlanted()
			test.plant(h)
			var got []Kind
			found := Check(&h.History)
			for _, v := range found {
				got = append(got, v.Kind)
			}
			testkit.Equal(t, "kinds", got, test.want)
			if t.Failed() {
				for _, v := range found {
					t.Log(v)
				}
			}
		})
	}
}
