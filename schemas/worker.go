package schemas

import "time"

// WorkerInfo describes a worker, alive or dead. It is stored in the registry bucket.
type WorkerInfo struct {
	// ID is the worker's id.
	ID string `json:"id"`
	// Incarnation is new at each start of the worker.
	Incarnation string `json:"incarnation"`
	// LowSeq is a sequence of EVT. The worker has no unfinished process before it, so a recovery starts there.
	LowSeq uint64 `json:"low_seq"`
	// Providers are the names of the providers that the worker supports.
	Providers []string `json:"providers"`
	// Templates are the names of the worker's templates.
	Templates []string `json:"templates,omitempty"`
	// Processes is how many processes it ran at its last update, three times per lease TTL. In a [Status] it is how many it runs now,
	// if the worker answers.
	Processes int `json:"processes,omitempty"`
	// Sessions and Sandboxes are how many it had then.
	Sessions  int `json:"sessions,omitempty"`
	Sandboxes int `json:"sandboxes,omitempty"`
	// Limits are the worker's; nil for those of an earlier version, which reported none.
	Limits *WorkerLimits `json:"limits,omitempty"`
	// Disk is that of the worker's workspaces at its last update; nil for workers of an earlier version.
	Disk *WorkerDisk `json:"disk,omitempty"`
}

// WorkerDisk is the room in the file system of a worker's workspaces.
type WorkerDisk struct {
	// FreeBytes is what ordinary users can still write. While it is less than MinFreeBytes, the worker starts no process.
	FreeBytes    int64 `json:"free_bytes"`
	MinFreeBytes int64 `json:"min_free_bytes"`
}

// Low reports whether the worker starts no process.
func (d *WorkerDisk) Low() bool { return d.FreeBytes < d.MinFreeBytes }

// WorkerLimits bound what a worker runs.
type WorkerLimits struct {
	// Processes is how many processes it runs at once.
	Processes int `json:"processes"`
	// TenantProcesses and ThreadProcesses are how many one tenant and one thread may have of an idle worker. Default: not known.
	TenantProcesses int `json:"tenant_processes,omitempty"`
	ThreadProcesses int `json:"thread_processes,omitempty"`
	// Sessions is how many sessions it has at once, and TenantSessions how many one tenant may have of an idle worker. Default: not known.
	Sessions       int `json:"sessions,omitempty"`
	TenantSessions int `json:"tenant_sessions,omitempty"`
	// Sandboxes is how many sandboxes it has at once, and TenantSandboxes how many one tenant may have of an idle worker. Default: not known.
	Sandboxes       int `json:"sandboxes,omitempty"`
	TenantSandboxes int `json:"tenant_sandboxes,omitempty"`
	// TenantMemoryBytes and TenantCPUs bound the sums of the limits of one tenant's sandboxes. Default: no bound.
	TenantMemoryBytes int64 `json:"tenant_memory_bytes,omitempty"`
	TenantCPUs        int   `json:"tenant_cpus,omitempty"`
	// WorkspaceBytes, WorkspaceFiles and FileBytes bound each workspace, unless its template sets other limits.
	WorkspaceBytes int64 `json:"workspace_bytes"`
	WorkspaceFiles int64 `json:"workspace_files"`
	FileBytes      int64 `json:"file_bytes"`
}

// Delivery is a command as a worker receives it.
type Delivery struct {
	// Tenant, Thread and Op are those of the subject.
	Tenant, Thread string
	Op             Op
	// Command is the decoded command; nil when Invalid is set. Set it with SetCommand.
	Command *Command
	// Invalid is why the command cannot be decoded.
	Invalid *Error
	// Process is the command's process id, Fingerprint its [Command.Fingerprint]. Both are empty without a command. They are
	// computed once, where the command is decoded.
	Process, Fingerprint string
	// Inbox is the subject for the command's events; empty when no caller waits.
	Inbox string
	// Sent is when CMD stored the command, by the server's clock. It is zero for a command that came from its caller.
	Sent time.Time
	// Durable says that the command comes from CMD, which delivers it again unless the verdict ends it.
	Durable bool
	// Attempt counts the deliveries of the command, from 1.
	Attempt int
}

// SetCommand sets Command, and computes Process and Fingerprint. Tenant and Thread must be set.
func (d *Delivery) SetCommand(c *Command) {
	d.Command, d.Process, d.Fingerprint = c, ProcessID(d.Tenant, d.Thread, c.Key), c.Fingerprint()
}

// Verdict says what to do with a delivery.
type Verdict struct {
	Action Action
	// To is the worker to forward to, for ActionForward. For ActionFull it is the worker that owns the thread, empty when no worker
	// does.
	To string
	// Reason is why the command is a dead letter, for ActionDead, what the worker lacks, for ActionDecline, or which limit is reached, for
	// ActionLimit.
	Reason *Error
}

// Action is what to do with a durable delivery. A fast one has its reply already.
type Action int

// The actions.
const (
	ActionDone    Action = iota // accepted, answered or refused for good: do not deliver it again
	ActionRetry                 // deliver it again, later or to another worker
	ActionForward               // send it to the thread's owner
	ActionDead                  // no worker can ever accept it: store it as a dead letter
	ActionFull                  // no room now: deliver it again when there is, or to another worker if no worker owns the thread
	ActionDecline               // this worker cannot serve it and no worker owns the thread: offer it to others
	ActionLimit                 // a limit of the cell is reached, and no worker can accept it now: deliver it again until one can
)
