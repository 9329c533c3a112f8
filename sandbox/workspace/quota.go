package workspace

import (
	"math"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/internal/diskspace"
	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// CheckInterval is the least time between two calls of Quota.Check while a process runs: 2 s.
const CheckInterval = 2 * time.Second

// NextCheck returns the time until the next call of Quota.Check after one that took d: CheckInterval, or more for a large workspace, so
// that checks take a tenth of the time.
func NextCheck(d time.Duration) time.Duration { return max(CheckInterval, 9*d) }

// maxStrikes is the number of commands in a row that may make a workspace larger that is over its quota.
const maxStrikes = 3

// Quota checks one workspace against its limits. Its methods may be called at the same time.
type Quota struct {
	mu      sync.Mutex
	limits  sandbox.Limits
	dir     func() string
	over    error     // limit_exceeded while the workspace is over its quota
	crossed bool      // the quota was crossed during the current command
	last    Usage     // at the end of the last command, or less
	least   Usage     // the smallest since the quota was crossed
	strikes int       // commands that made the workspace larger since then
	checked time.Time // the last measurement; zero before the first
	used    Usage     // by the last measurement
	hidden  hidden
}

// hidden is a part of the workspace that cannot be measured. It may grow, so it is treated as one that does, unless it is there for a short
// time only: what is hidden for less is measured soon enough. What was counted before stays counted meanwhile.
type hidden struct {
	cause   error     // of the last measurement; nil when it was complete
	since   time.Time // the first measurement in a row with a cause
	strikes int       // commands that ended with a hidden part, at most one in each CheckInterval
	struck  time.Time // the last strike
}

// update records the result of a measurement.
func (h *hidden) update(cause error, now time.Time) {
	switch {
	case cause == nil:
		*h = hidden{}
	case h.cause == nil:
		h.since = now
	}
	h.cause = cause
}

// check returns limit_exceeded for what has been hidden for too long.
func (h *hidden) check(now time.Time) error {
	if h.cause == nil || now.Sub(h.since) < CheckInterval {
		return nil
	}
	return schemas.Errorf(schemas.CodeLimitExceeded, "%s", h.cause)
}

// strike counts a command that has ended while something was hidden. Commands that end together, as those that are killed for it, count once.
func (h *hidden) strike(now time.Time) {
	if now.Sub(h.struck) >= CheckInterval {
		h.strikes, h.struck = h.strikes+1, now
	}
}

// NewQuota returns the Quota of a folder. It calls dir before each measurement, because a workspace can be renamed. Limits that are
// zero have their defaults.
func NewQuota(dir func() string, limits sandbox.Limits) *Quota {
	return &Quota{dir: dir, limits: limits.WorkspaceDefaults()}
}

// Admit checks whether a command may start. Errors: limit_exceeded.
func (q *Quota) Admit() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Usually the end of the last command has just been checked.
	if q.over == nil && q.hidden.strikes < maxStrikes && time.Since(q.checked) < CheckInterval {
		return nil
	}
	u := q.measure(0)
	if q.over != nil && q.crossed { // files came from outside the sandbox
		q.cross(u)
	}
	if q.hidden.strikes >= maxStrikes {
		return schemas.Errorf(schemas.CodeLimitExceeded, "%s; %d commands ended without that: no command is started until it is done on the worker", q.hidden.cause, q.hidden.strikes)
	}
	if q.over == nil || q.strikes < maxStrikes {
		return nil
	}
	return schemas.Errorf(schemas.CodeLimitExceeded, "%s, and the last %d commands made it larger: no command is started until files are removed on the worker; %s",
		q.over, q.strikes, advice)
}

// Room returns how many bytes and files the workspace has room for, by the last measurement. It leaves the reserve of the disk free.
func (q *Quota) Room() (bytes, files int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes, files = max(0, q.limits.WorkspaceBytes-q.used.Bytes), max(0, q.limits.WorkspaceFiles-q.used.Files)
	if q.unlimited() {
		return bytes, files
	}
	free, reserve := q.disk()
	return min(bytes, max(0, free-reserve)), files
}

// Check checks whether the running processes must end: they made the workspace cross its quota, or made it larger when it was over
// the quota already, or when the disk has little room left, or a part of the workspace cannot be measured for CheckInterval. What they hold
// open without a name counts, where the pid of their supervisor is known; see Unlinked. Errors: limit_exceeded.
func (q *Quota) Check(supervisor int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	wasOver, before, first := q.over != nil, q.used, q.checked.IsZero()
	u := q.measure(supervisor)
	if first {
		before = u
	}
	if q.over == nil || wasOver && !q.crossed && !u.exceeds(q.last) {
		if err := q.hidden.check(q.checked); err != nil {
			return err
		}
		return q.checkDisk(u.Bytes - before.Bytes)
	}
	return q.exceeded()
}

// disk returns what is free of the workspace's file system, and what is kept free. A disk that does not answer has room.
func (q *Quota) disk() (free, reserve int64) {
	disk, err := diskspace.Of(q.dir())
	if err != nil {
		return math.MaxInt64, 0
	}
	return disk.Free, disk.Reserve(q.limits.MinFreeBytes)
}

// smallGrowth bounds the growth between two checks, in bytes, that is no reason to kill anything.
const smallGrowth = 1 << 20

// checkDisk returns limit_exceeded for a workspace that has grown while less than half of the reserve is free. The other half is left
// for ending processes and recording that. Little growth, such as that of a log, is no reason.
func (q *Quota) checkDisk(grown int64) error {
	if q.unlimited() {
		return nil
	}
	free, reserve := q.disk()
	if free >= reserve/2 || grown <= min(reserve/1024, smallGrowth) {
		return nil
	}
	return schemas.Errorf(schemas.CodeLimitExceeded, "the disk of the workspaces has %d bytes free, less than half of the %d that are kept free, and the workspace grew by %d: free space on "+
		"the worker's disk, or start the worker with a smaller --min-free", free, reserve, grown)
}

// CheckExit checks the workspace after a command has ended: whether the command made it cross its quota, or made it larger when it
// was over the quota already, or left a part of it that has not been measurable for CheckInterval. Errors: limit_exceeded.
func (q *Quota) CheckExit() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.measure(0)
	err := q.hidden.check(q.checked)
	if err != nil {
		q.hidden.strike(q.checked)
	}
	switch {
	case q.over == nil:
		return err
	case q.crossed:
		q.cross(u)
	case u.exceeds(q.last):
		q.strikes++
		q.last = u
	default:
		return err
	}
	return q.exceeded()
}

// cross records the usage of a workspace that has just crossed its quota. mu is held.
func (q *Quota) cross(u Usage) { q.crossed, q.last, q.least = false, u, u }

// advice is the way out of an exceeded quota.
const advice = "commands that remove files may run; to raise the limit, start the worker with larger --workspace-bytes, --workspace-files or " +
	"--file-bytes, or change the limits of the session's template"

func (q *Quota) exceeded() error {
	return schemas.Errorf(schemas.CodeLimitExceeded, "%s: %s", q.over, advice)
}

// unlimited reports whether the workspace has no limits, and is not measured.
func (q *Quota) unlimited() bool {
	return min(q.limits.WorkspaceBytes, q.limits.WorkspaceFiles, q.limits.FileBytes) >= sandbox.NoLimit
}

// measure measures the workspace, unless it has no limits, adds what is unlinked, and updates the state. mu is held.
func (q *Quota) measure(supervisor int) Usage {
	if q.unlimited() {
		q.checked = time.Now()
		return Usage{}
	}
	unlinked := Unlinked(q.dir(), supervisor) // first, so that a file that loses its name meanwhile does not count twice
	u, err := Measure(q.dir())
	if shortage.Of(err) {
		return q.used // the worker's trouble: it says nothing about the workspace, whose state stays until the next measurement
	}
	u.Bytes += unlinked
	if err != nil { // a part of it
		u = Usage{Bytes: max(u.Bytes, q.used.Bytes), Largest: max(u.Largest, q.used.Largest), Files: max(u.Files, q.used.Files)}
	}
	q.checked, q.used = time.Now(), u
	q.hidden.update(err, q.checked)
	wasOver := q.over != nil
	q.over = q.check(u)
	switch {
	case q.over == nil:
		q.crossed, q.strikes = false, 0
	case !wasOver:
		q.cross(u)
		q.crossed, q.strikes = true, 0
	default:
		if u.below(q.last) {
			q.last = u
		}
		if u.below(q.least) { // smaller than ever since the quota was crossed
			q.least, q.strikes = u, 0
		}
	}
	return u
}

// check returns limit_exceeded for the first limit that is exceeded.
func (q *Quota) check(u Usage) error {
	for _, l := range []struct {
		text       string
		value, max int64
	}{
		{"the workspace has %d bytes, limit %d", u.Bytes, q.limits.WorkspaceBytes},
		{"the workspace has %d files and folders, limit %d", u.Files, q.limits.WorkspaceFiles},
		{"a file in the workspace has %d bytes, limit %d", u.Largest, q.limits.FileBytes},
	} {
		if l.value > l.max {
			return schemas.Errorf(schemas.CodeLimitExceeded, l.text, l.value, l.max)
		}
	}
	return nil
}

// below reports whether one number is less and none is more.
func (u Usage) below(other Usage) bool { return other.exceeds(u) && !u.exceeds(other) }

// exceeds reports whether one number is more.
func (u Usage) exceeds(other Usage) bool {
	return u.Bytes > other.Bytes || u.Files > other.Files
}
