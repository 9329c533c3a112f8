package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Kind is a promise that was broken.
type Kind string

// The kinds, most serious first.
const (
	DoubleRun     Kind = "double run"       // a command began more often than its caller allowed
	DoubleAccept  Kind = "double accept"    // a second acceptance where none is allowed
	DoubleEnd     Kind = "double end"       // a terminal record after the last one, or a dead letter beside a record
	BrokenChain   Kind = "broken chain"     // a record that cannot follow the one before it
	LostCommand   Kind = "lost command"     // acked or accepted, and without a trace
	CanceledRan   Kind = "canceled ran"     // canceled while it was queued, and it ran
	RejectedRun   Kind = "rejected run"     // rejected, or not on record, and it ran
	PhantomRun    Kind = "phantom run"      // it exited by its record, and never began
	ReusedKey     Kind = "reused key"       // another command's result as the answer
	WrongAnswer   Kind = "wrong answer"     // the answer is not what is on record
	StaleEpoch    Kind = "stale epoch"      // written by an earlier owner after a later one, or two owners in one epoch
	Hole          Kind = "hole"             // output is missing, and nothing says so
	WrongOutput   Kind = "wrong output"     // stored or delivered output that the command did not print
	Duplicate     Kind = "duplicate output" // output that is stored twice
	LateOutput    Kind = "late output"      // output that is stored after the end
	FeedHole      Kind = "feed hole"        // a follower of EVT or MSG did not receive a message
	FeedDisorder  Kind = "feed disorder"    // a follower of EVT or MSG received a message twice, or after a later one
	DoubleEvent   Kind = "double event"     // an event that is stored twice
	Disorder      Kind = "disorder"         // queued commands of a thread accepted in another order
	LostMessage   Kind = "lost message"     // a message that the history of the conversation misses
	Eviction      Kind = "eviction"         // EVT dropped records within their age
	NeedlessLoss  Kind = "needless loss"    // lost, and no fault explains it
	Unfinished    Kind = "unfinished"       // accepted, and without an end
	StuckCommand  Kind = "stuck command"    // still in CMD, although workers could take it
	MissingAnswer Kind = "missing answer"   // a client still waits
)

// Kinds lists every kind, most serious first.
func Kinds() []Kind {
	return []Kind{
		DoubleRun, DoubleAccept, DoubleEnd, BrokenChain, LostCommand, CanceledRan, RejectedRun, PhantomRun, ReusedKey, WrongAnswer, StaleEpoch,
		Hole, WrongOutput, Duplicate, LateOutput, FeedHole, FeedDisorder, DoubleEvent, Disorder, LostMessage, Eviction, NeedlessLoss, Unfinished,
		StuckCommand, MissingAnswer,
	}
}

// Violation is a broken promise with its evidence.
type Violation struct {
	// Kind is the promise.
	Kind Kind
	// Thread and Process are where it broke; empty when it concerns no single one.
	Thread, Process string
	// Evidence says what was found, with sequences of the streams.
	Evidence string
}

// String is one line for people.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s", v.Kind, strings.TrimSpace(fmt.Sprintf("thread %s process %s: %s", v.Thread, v.Process, v.Evidence)))
}

// checker collects violations.
type checker struct {
	*History
	found []Violation
}

func (c *checker) add(k Kind, p *process, format string, args ...any) {
	c.found = append(c.found, Violation{Kind: k, Thread: p.thread, Process: p.id, Evidence: fmt.Sprintf(format, args...)})
}

// Check returns the violations in a history, most serious kind first.
func Check(h *History) []Violation {
	c := &checker{History: h}
	all := h.processes()
	for _, p := range all {
		if p.id == "" {
			continue // a command that does not decode has no process
		}
		for _, check := range []func(*process){
			c.checkRuns, c.checkCancels, c.checkChain, c.checkFates, c.checkAnswers, c.checkEpochs, c.checkOutput, c.checkFollowers, c.checkMessages, c.checkLosses,
		} {
			check(p)
		}
	}
	c.checkOrder(all)
	c.checkOwners()
	c.checkFeeds()
	c.checkEvents()
	if c.evicted() {
		c.add(Eviction, &process{}, "the first sequence in EVT is %d", h.FirstEvent)
	}
	rank := make(map[Kind]int)
	for i, k := range Kinds() {
		rank[k] = i
	}
	slices.SortStableFunc(c.found, func(a, b Violation) int { return cmp.Compare(rank[a.Kind], rank[b.Kind]) })
	return c.found
}

// evicted reports that records are missing: what they would have said is not known.
func (c *checker) evicted() bool { return c.FirstEvent > 1 }

// checkRuns compares what ran with the records.
func (c *checker) checkRuns(p *process) {
	ran := c.Runs[p.id]
	allowed := 1
	if p.safe() { // the start of a sandbox that failed may be repeated once
		allowed = 2 * max(1, p.count(schemas.TypeProcessAccepted))
	}
	if ran > allowed {
		c.add(DoubleRun, p, "it began %d times, allowed are %d; records: %s", ran, allowed, p.story())
	}
	if c.evicted() {
		return
	}
	ended := p.count(schemas.TypeProcessExited, schemas.TypeProcessLost)
	switch end := p.end(); {
	case ran > 0 && ended == 0 && p.canceled():
		c.add(CanceledRan, p, "it began %d times; records: %s", ran, p.story())
	case ran > 0 && p.count(schemas.TypeProcessAccepted) == 0:
		c.add(RejectedRun, p, "it began %d times without an acceptance; records: %s", ran, p.story())
	case ran > 0 && ended == 0 && end != nil:
		c.add(RejectedRun, p, "it began %d times; records: %s", ran, p.story())
	case ran > 0 || end == nil || p.ranExec() == nil:
	case end.Result.Reason == schemas.ReasonExited && end.Result.ExitCode < schemas.ExitTimedOut: // 124 and more: it may not have begun
		c.add(PhantomRun, p, "exit code %d, and it never began; records: %s", end.Result.ExitCode, p.story())
	}
}

// cancelTime is how long after the ack of its cancel a command may still be accepted: a dispatcher learns of it within a second, and a
// fault may hold up an acceptance that is on its way. Its process is then killed.
const cancelTime = 20 * time.Second

// checkCancels checks that no command was accepted, and ran, long after its cancel was acked.
func (c *checker) checkCancels(p *process) {
	for _, o := range p.ops {
		for _, r := range p.records {
			if r.Type == schemas.TypeProcessAccepted && !o.Canceled.IsZero() && r.Stored.After(o.Canceled.Add(cancelTime)) && c.Runs[p.id] > 0 {
				c.add(CanceledRan, p, "its cancel was acked at %s; records: %s", clock(o.Canceled), p.story())
			}
		}
	}
}

// clock is a time as evidence shows it.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// line is what the command runs, cut to 100 bytes.
func (o *Op) line() string {
	if o.Command.Exec == nil {
		return "a message"
	}
	line := strings.Join(o.Command.Exec.Args, " ")
	return fmt.Sprintf("%q", line[:min(len(line), 100)])
}

// story lists the records of a process.
func (p *process) story() string {
	var b strings.Builder
	for _, r := range p.records {
		fmt.Fprintf(&b, "%s EVT %d epoch %d by %s at %s; ",
			strings.TrimPrefix(string(r.Type), "process."), r.Seq, r.Epoch, r.Source, clock(r.Stored))
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// checkChain checks that each record can follow the one before it.
func (c *checker) checkChain(p *process) {
	var last *Record
	for _, r := range p.records {
		if last != nil && r.Fingerprint != "" && last.Fingerprint != "" && r.Fingerprint != last.Fingerprint {
			c.add(DoubleAccept, p, "records of two commands; records: %s", p.story())
		}
		if k := follows(last, r, p.safe()); k != "" && (last != nil || !c.evicted()) {
			c.add(k, p, "EVT %d; records: %s", r.Seq, p.story())
		}
		last = r
	}
	if last != nil && !last.Type.Terminal() {
		c.add(Unfinished, p, "records: %s", p.story())
	}
}

// follows returns the promise that a record breaks by following another, which is nil for none.
func follows(last, r *Record, safe bool) Kind {
	ended := last != nil && last.Type.Terminal()
	again := last != nil && (last.Result.RunsAgain() || safe && last.Type == schemas.TypeProcessLost)
	switch {
	case r.Type == schemas.TypeProcessAccepted && (last == nil || again || safe && !ended):
		return ""
	case r.Type == schemas.TypeProcessAccepted:
		return DoubleAccept
	case r.Type == schemas.TypeProcessRejected && (last == nil || again):
		return ""
	case last != nil && last.Type == schemas.TypeProcessAccepted:
		return ""
	case ended && r.Type.Terminal():
		return DoubleEnd
	case last != nil && last.Type == schemas.TypeProcessStarted && r.Type.Terminal():
		return ""
	default:
		return BrokenChain
	}
}

// checkFates checks that each command ended in exactly one way.
func (c *checker) checkFates(p *process) {
	for _, d := range p.waiting {
		c.add(StuckCommand, p, "CMD %d", d.Seq)
	}
	for _, d := range p.dead {
		// After a rejection that is not final, another sending may become a dead letter.
		if d.Fingerprint == p.fingerprint() && (p.end() == nil || !p.end().Result.RunsAgain()) {
			c.add(DoubleEnd, p, "dead letter DLQ %d (%s) beside records: %s", d.Seq, d.Reason, p.story())
		}
	}
	for _, o := range p.ops {
		known := o.Queued > 0 || o.Result != nil && o.Result.Fingerprint == o.Fingerprint
		on := func(d *Command) bool { return d.Fingerprint == o.Fingerprint }
		if known && !c.evicted() && p.fingerprint() != o.Fingerprint && !slices.ContainsFunc(p.dead, on) && !slices.ContainsFunc(p.waiting, on) {
			c.add(LostCommand, p, "CMD %d, sent at %s; records: %s", o.Queued, clock(o.Sent), p.story())
		}
	}
}

// checkEpochs checks that no earlier owner wrote after a later one.
func (c *checker) checkEpochs(p *process) {
	var epoch, chunkEpoch uint64
	for _, r := range p.records {
		if r.Epoch != 0 && r.Epoch < epoch {
			c.add(StaleEpoch, p, "EVT %d has epoch %d after epoch %d; records: %s", r.Seq, r.Epoch, epoch, p.story())
		}
		epoch = max(epoch, r.Epoch)
	}
	for _, k := range p.chunks {
		if k.Epoch < chunkEpoch {
			c.add(StaleEpoch, p, "LOG %d has epoch %d after epoch %d", k.Seq, k.Epoch, chunkEpoch)
		}
		chunkEpoch = max(chunkEpoch, k.Epoch)
	}
}

// checkOwners checks the acceptances of each session: its epochs grow, and each has one owner.
func (c *checker) checkOwners() {
	latest := make(map[string]*Record)
	for i := range c.Records {
		r := &c.Records[i]
		if r.Type != schemas.TypeProcessAccepted {
			continue
		}
		key := r.Thread + " " + r.Session
		last := latest[key]
		switch {
		case last == nil || r.Epoch > last.Epoch:
			latest[key] = r
		case r.Epoch < last.Epoch:
			c.add(StaleEpoch, &process{id: r.Process, thread: r.Thread}, "EVT %d was accepted by %s with epoch %d, after EVT %d by %s with epoch %d",
				r.Seq, r.Source, r.Epoch, last.Seq, last.Source, last.Epoch)
		case r.Source != last.Source:
			c.add(StaleEpoch, &process{id: r.Process, thread: r.Thread}, "epoch %d has two owners: EVT %d by %s, EVT %d by %s",
				r.Epoch, last.Seq, last.Source, r.Seq, r.Source)
		}
	}
}

// checkOrder checks that the queued commands of a thread were accepted in the order in which CMD stored them.
func (c *checker) checkOrder(all []*process) {
	type queued struct {
		p        *process
		cmd, evt uint64
	}
	threads := make(map[string][]queued)
	for _, p := range all {
		first := uint64(0)
		if p.canceled() {
			continue // its record has no place in the order
		}
		for _, o := range p.ops {
			if !o.Durable || o.Queued == 0 || o.Fingerprint != p.fingerprint() {
				first = 0
				break
			}
			if first == 0 || o.Queued < first {
				first = o.Queued
			}
		}
		if first > 0 && len(p.records) > 0 {
			threads[p.thread] = append(threads[p.thread], queued{p, first, p.records[0].Seq})
		}
	}
	for _, q := range threads {
		slices.SortFunc(q, func(a, b queued) int { return cmp.Compare(a.cmd, b.cmd) })
		for i := 1; i < len(q); i++ {
			if q[i].evt < q[i-1].evt {
				c.add(Disorder, q[i].p, "CMD %d has EVT %d, after CMD %d of process %s with EVT %d",
					q[i].cmd, q[i].evt, q[i-1].cmd, q[i-1].p.id, q[i-1].evt)
			}
		}
	}
}

// checkMessages checks the history of a conversation.
func (c *checker) checkMessages(p *process) {
	roles := make(map[schemas.Role]int)
	for _, m := range p.messages {
		roles[m.Role]++
	}
	for role, n := range roles {
		if n > 1 {
			c.add(Duplicate, p, "%d messages of the %s", n, role)
		}
	}
	o := p.ran()
	if o == nil || o.Command.Message == nil || c.evicted() {
		return
	}
	if p.count(schemas.TypeProcessStarted) > 0 && roles[schemas.RoleUser] == 0 {
		c.add(LostMessage, p, "no prompt in MSG; records: %s", p.story())
	}
	if c.Finished[p.id] && p.count(schemas.TypeProcessExited) > 0 && roles[schemas.RoleAgent] == 0 {
		c.add(LostMessage, p, "no answer in MSG, although stream.finished names no failed hook; records: %s", p.story())
	}
}

// checkLosses checks that a fault explains each process that was reported as lost.
func (c *checker) checkLosses(p *process) {
	var accepted, started *Record
	for _, r := range p.records {
		switch r.Type {
		case schemas.TypeProcessAccepted:
			accepted, started = r, nil
		case schemas.TypeProcessStarted:
			started = r
		case schemas.TypeProcessLost:
			if accepted != nil && !c.explained(accepted, started, r) {
				c.add(NeedlessLoss, p, "%s; records: %s", r.Result.Error, p.story())
			}
		}
	}
}

// explained reports whether a fault may have cost a process. A worker that returns within its lease keeps its threads, and what it had
// started.
func (c *checker) explained(accepted, started, lost *Record) bool {
	for _, f := range c.Faults {
		if f.Worker != accepted.Source || f.From.After(lost.Stored) || f.To.Before(accepted.Stored) {
			continue
		}
		if f.Stopped && slices.ContainsFunc(c.Broken, func(s Span) bool { return s.From.Before(f.To) && s.To.After(f.From) }) {
			return true
		}
		if f.Sandbox || f.To.Sub(f.From) >= c.LeaseTTL/2 || lost.Source == accepted.Source && (started == nil || started.Stored.After(f.From)) {
			return true
		}
	}
	return false // an outage alone costs nothing: see docs/adr/0025
}
