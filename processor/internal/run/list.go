package run

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// maxListBytes bounds a reply with processes, in bytes of its JSON, below what NATS allows in a message.
const maxListBytes = 512 << 10

// List lists the processes of a tenant that are on record and have not ended, in the order of their ids, and counts those of all tenants.
func (rs *Runs) List(ctx context.Context, tenant string, req schemas.ProcessesRequest) schemas.ProcessesReply {
	runs := slices.DeleteFunc(runsOf(rs), func(run *Run) bool {
		return run.thread.Tenant != tenant || run.process <= req.After || (req.Thread != "" && run.thread.ID != req.Thread)
	})
	slices.SortFunc(runs, func(a, b *Run) int { return strings.Compare(a.process, b.process) })
	reply, size := schemas.ProcessesReply{Processes: []schemas.ProcessInfo{}}, 0
	late := make(chan struct{})
	defer time.AfterFunc(maxRecording, func() { close(late) }).Stop()
	usages := map[string]sandbox.Usage{}
	if req.Usage {
		usages = measure(ctx, runs)
	}
	for _, run := range runs {
		if run.leaves(late) {
			continue
		}
		p := run.info(rs.publisher.Worker)
		if u, ok := usages[run.process]; ok {
			p.Usage = &schemas.ProcessUsage{CPUMS: work.Millis(u.CPU), MemoryBytes: u.Memory, Processes: u.Processes}
		}
		size += listSize(&p)
		if reply.More = size > maxListBytes; reply.More {
			break
		}
		reply.Processes = append(reply.Processes, p)
	}
	running := 0
	for _, run := range runsOf(rs) {
		if run.leaving() == nil {
			running++
		}
	}
	reply.Running = &running
	return reply
}

// maxRecording is how long a list waits for ends that are being recorded.
const maxRecording = time.Second

// leaves reports whether the end of the run is on record, or is so before late: a caller that has seen the record must not find the process
// in a list.
func (run *Run) leaves(late <-chan struct{}) bool {
	left := run.leaving()
	if left == nil {
		return false
	}
	select {
	case <-left:
		return true
	case <-late:
		return false
	}
}

// leaving returns what is closed when the run has left, nil until its end is being recorded.
func (run *Run) leaving() <-chan struct{} {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.left
}

// listSize is the most bytes that a process has in a reply: JSON may write a byte of a text as six.
func listSize(p *schemas.ProcessInfo) int {
	n := len(p.Command)
	for _, a := range p.Args {
		n += 1 + len(a)
	}
	return 6*n + 1<<10
}

// info describes the process. One that is killed while it starts shows as starting, until its end is on record.
func (run *Run) info(worker string) schemas.ProcessInfo {
	p := schemas.ProcessInfo{
		Process: run.process, Thread: run.thread.ID, Status: schemas.StatusStarting, Worker: worker,
		Command: run.exec.Command, Args: run.args, ArgsTruncated: run.argsTruncated, Started: run.entered, AutoCleanup: run.exec.AutoCleanup,
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if !run.begun.IsZero() {
		p.Status, p.Started = schemas.StatusRunning, run.begun
	}
	if run.proc != nil { // nil until its sandbox is reattached
		p.PID = run.proc.PID()
	}
	p.Started = p.Started.UTC()
	return p
}
