package link

import (
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

// quotaWatcher keeps a sandbox's workspace within its limits: it measures the workspace while a process runs, and after each one.
type quotaWatcher struct {
	quota      *workspace.Quota
	limits     sandbox.Limits
	supervisor int // its pid; 0 where it is not known

	mu        sync.Mutex
	running   map[*Process]struct{}
	measuring bool
	measured  chan struct{} // closed when the last measuring goroutine has ended; nil before the first
	stopped   bool
}

func newQuotaWatcher(dir func() string, limits sandbox.Limits, supervisor int) *quotaWatcher {
	return &quotaWatcher{
		quota: workspace.NewQuota(dir, limits), limits: limits.WorkspaceDefaults(), supervisor: supervisor, running: make(map[*Process]struct{}),
	}
}

// watch watches a process until it has ended. It must be called before any Wait for the process.
func (q *quotaWatcher) watch(p *Process) {
	p.quota = q
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running[p] = struct{}{}
	if q.measuring || q.stopped {
		return
	}
	measured := make(chan struct{})
	q.measuring, q.measured = true, measured
	go func() {
		defer close(measured)
		q.measure()
	}()
}

// room returns the first arguments of the program for files: the limits that it keeps, as package sandbox/supervisor/files wants them.
func (q *quotaWatcher) room(access sandbox.FilesAccess) []string {
	limits := [...]int64{-1, -1, -1}
	if access == sandbox.FilesWrite {
		bytes, files := q.quota.Room()
		limits = [...]int64{q.limits.FileBytes, bytes, files}
	}
	args := make([]string, len(limits))
	for i, n := range limits {
		args[i] = strconv.FormatInt(n, 10)
	}
	return args
}

// stop starts no more measuring and waits for the last. Every process has ended or is about to; a start may still be in progress.
func (q *quotaWatcher) stop() {
	q.mu.Lock()
	q.stopped = true
	measured := q.measured
	q.mu.Unlock()
	if measured != nil {
		<-measured
	}
}

func (q *quotaWatcher) measure() {
	timer := time.NewTimer(workspace.CheckInterval)
	defer timer.Stop()
	for p := q.anyRunning(); p != nil; p = q.anyRunning() {
		select {
		case <-p.ended:
			continue
		case <-timer.C:
		}
		began := time.Now()
		if err := q.quota.Check(q.supervisor); err != nil {
			q.killAll(err)
		}
		timer.Reset(workspace.NextCheck(time.Since(began)))
	}
}

// anyRunning returns a running process; nil ends measuring.
func (q *quotaWatcher) anyRunning() *Process {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p := range q.running {
		if !p.isEnded() {
			return p
		}
		delete(q.running, p)
	}
	q.measuring = false
	return nil
}

func (q *quotaWatcher) killAll(overrun error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p := range q.running {
		p.mu.Lock()
		p.overrun = overrun
		p.mu.Unlock()
		_ = p.Kill(0) // it fails when the sandbox is gone, and the process with it
	}
}

// fileSizeCode is a shell's exit code when SIGXFSZ ended its program, or the program's own program, for writing too large a file.
const fileSizeCode = schemas.ExitSignalBase + int(syscall.SIGXFSZ)

func (q *quotaWatcher) exceededBy(p *Process) error {
	err := q.quota.CheckExit()
	p.mu.Lock()
	overrun := p.overrun
	p.mu.Unlock()
	switch {
	case err != nil:
		return err
	case overrun != nil && p.exit.Reason == schemas.ReasonKilled:
		return overrun
	case p.exit.Code == fileSizeCode:
		return schemas.Errorf(schemas.CodeLimitExceeded, "a file would exceed the limit of %d bytes: start the worker with a larger --file-bytes, or change the limits of the session's template",
			q.limits.FileBytes)
	}
	return nil
}
