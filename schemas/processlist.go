package schemas

import "time"

// ProcessStatus is the state of a process as lists show it.
type ProcessStatus string

// The statuses. The first two are those of a process that has not ended; see [Result.Status] for the others.
const (
	StatusStarting  ProcessStatus = "starting"  // it is accepted: its sandbox is being started, or it waits for its turn
	StatusRunning   ProcessStatus = "running"   // it runs
	StatusCompleted ProcessStatus = "completed" // it ended by itself with exit code 0
	StatusFailed    ProcessStatus = "failed"    // it ended by itself with another exit code, or the memory limit ended it
	StatusKilled    ProcessStatus = "killed"    // a signal or its timeout ended it
	StatusLost      ProcessStatus = "lost"      // its supervisor or worker died; how it ended is unknown
	StatusRejected  ProcessStatus = "rejected"  // it never ran
)

// ProcessStatuses lists every status.
func ProcessStatuses() []ProcessStatus {
	return []ProcessStatus{StatusStarting, StatusRunning, StatusCompleted, StatusFailed, StatusKilled, StatusLost, StatusRejected}
}

// Ended reports whether no other status can follow, unless the process runs again.
func (s ProcessStatus) Ended() bool { return s != StatusStarting && s != StatusRunning }

// Status is the status of a process that ended like this.
func (r *Result) Status() ProcessStatus {
	switch {
	case r.Reason == ReasonLost:
		return StatusLost
	case r.Reason == ReasonRejected:
		return StatusRejected
	case r.Reason == ReasonKilled, r.Reason == ReasonTimedOut:
		return StatusKilled
	case r.Reason == ReasonExited && r.ExitCode == 0:
		return StatusCompleted
	default:
		return StatusFailed
	}
}

// ProcessInfo describes a process in a list.
type ProcessInfo struct {
	// Process is the process id, Thread its thread.
	Process string `json:"process"`
	Thread  string `json:"thread"`
	// Status is its status. Reason is why it ended; empty while it has not.
	Status ProcessStatus `json:"status"`
	Reason Reason        `json:"reason,omitempty"`
	// Command and Args are the program and its arguments, cut as in [Accepted]; ArgsTruncated says so.
	Command       string   `json:"command"`
	Args          []string `json:"args,omitempty"`
	ArgsTruncated bool     `json:"args_truncated,omitempty"`
	// PID is its process id inside the sandbox while it runs, as far as its worker knows it.
	PID int `json:"pid,omitempty"`
	// Worker is the worker that runs or ran it.
	Worker string `json:"worker,omitempty"`
	// Started is when it started, or was accepted if it has not started, in UTC. Ended is when it ended.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	// ExitCode is set once it has ended; see [Result].
	ExitCode *int `json:"exit_code,omitempty"`
	// Seq is the sequence of its end in EVT; 0 while it has none.
	Seq uint64 `json:"seq,omitempty"`
	// Usage is what it uses now, if the request asks for it and its sandbox measures it.
	Usage *ProcessUsage `json:"usage,omitempty"`
	// AutoCleanup says that lists leave it out once it has ended.
	AutoCleanup bool `json:"auto_cleanup,omitempty"`
}

// ProcessUsage is what a process and its descendants use.
type ProcessUsage struct {
	// CPUMS is the CPU time of those that run and of their children that have ended, in milliseconds.
	CPUMS float64 `json:"cpu_ms"`
	// MemoryBytes is the sum of their resident sets: pages that they share count several times.
	MemoryBytes int64 `json:"memory_bytes"`
	// Processes is how many they are.
	Processes int `json:"processes"`
}

// Begin notes a record of a process that has not ended: that it was accepted, or started.
func (p *ProcessInfo) Begin(ev *Event) error {
	p.Process, p.Thread, p.Worker, p.Started = ev.Process, ev.Thread, ev.Source, ev.Time
	if ev.Type == TypeProcessStarted {
		var s Started
		if err := ev.Decode(&s); err != nil {
			return err
		}
		p.Status, p.PID = StatusRunning, s.PID
		if p.Command == "" {
			p.Command = s.Command
		}
		return nil
	}
	var a Accepted
	if err := ev.Decode(&a); err != nil {
		return err
	}
	p.Status, p.Command, p.Args, p.ArgsTruncated, p.AutoCleanup = StatusStarting, a.Command, a.Args, a.ArgsTruncated, a.AutoCleanup
	return nil
}

// EndedProcess describes the process of its last record.
func EndedProcess(ev *Event) (ProcessInfo, error) {
	var r Result
	if err := ev.Decode(&r); err != nil {
		return ProcessInfo{}, err
	}
	p := ProcessInfo{
		Process: ev.Process, Thread: ev.Thread, Status: r.Status(), Reason: r.Reason, Command: r.Command, Args: r.Args, ArgsTruncated: r.ArgsTruncated,
		Worker: r.Worker, Started: r.Timestamp, Ended: ev.Time, ExitCode: &r.ExitCode, Seq: ev.Seq, AutoCleanup: r.AutoCleanup,
	}
	if p.Worker == "" { // another worker records a lost process
		p.Worker = ev.Source
	}
	return p, nil
}

// ProcessesRequest asks a worker for the processes that it runs. It is sent on api.processes.<worker>.
type ProcessesRequest struct {
	// Thread is the thread of the processes. Default: all of the tenant's.
	Thread string `json:"thread,omitempty"`
	// After is the last process of the previous reply. Default: begin with the first.
	After string `json:"after,omitempty"`
	// Usage asks what each process uses now. Default: it is not measured.
	Usage bool `json:"usage,omitempty"`
}

// ProcessesReply is the answer of a worker: the processes that it runs, in the order of their ids.
type ProcessesReply struct {
	// Processes are as many as a message has room for.
	Processes []ProcessInfo `json:"processes"`
	// More says that there are more, after the last of these.
	More bool `json:"more,omitempty"`
	// Running is how many processes the worker runs now, of all tenants; nil for workers of an earlier version.
	Running *int `json:"running,omitempty"`
	// Error is why the worker does not answer: it is shutting down.
	Error *Error `json:"error,omitempty"`
}

// DecodeProcessesRequest decodes and validates a request for processes, as strictly as [DecodeCommand] and with the same errors.
func DecodeProcessesRequest(body []byte) (*ProcessesRequest, error) {
	return decodeRequest("request for processes", body, func(r *ProcessesRequest) error {
		if err := checkOptionalID("thread", r.Thread); err != nil {
			return err
		}
		return checkOptionalID("after", r.After)
	})
}
