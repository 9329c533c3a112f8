package client

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// view is what a handle knows of its session and its sandbox.
type view struct {
	mu      sync.Mutex
	session *Session            // nil before there is one
	created bool                // by the handle
	info    schemas.SandboxInfo // of the newest sandbox that it saw
	seq     uint64              // of the event that info is from; 0 for none
	over    error               // why no call can succeed any more; nil while one can
	exit    *int                // of the main command that has ended the session; nil for none
	worker  string              // that may keep the workspace of the session that has ended
}

// now returns the session, and why no call can succeed any more.
func (v *view) now() (*Session, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.session, v.over
}

func (v *view) state() schemas.SandboxInfo {
	info, _ := v.newest()
	return info
}

// newest returns the state of the newest sandbox that was seen, and the sequence of its event; 0 when it is from an answer.
func (v *view) newest() (info schemas.SandboxInfo, seq uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.info, v.seq
}

// owns reports that the handle has created a session which has not ended.
func (v *view) owns() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.over == nil && (v.created || v.session == nil)
}

// enter begins with a session.
func (v *view) enter(session *Session, created bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.session, v.created, v.info, v.seq = session, created, schemas.SandboxInfo{}, 0
}

// expire leaves an expired session, unless another call has left it before.
func (v *view) expire(session *Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == session {
		v.session = nil
	}
}

// note takes over the state of a sandbox from an event, or with a sequence of 0 from an answer, unless it is older than what is known.
func (v *view) note(info schemas.SandboxInfo, seq uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rank := func(s schemas.SandboxState) int { return slices.Index(schemas.SandboxStates(), s) }
	switch {
	case v.over != nil:
		return
	case info.ID == v.info.ID:
		if rank(info.State) < rank(v.info.State) {
			return
		}
		seq = max(seq, v.seq)
	case seq > 0 && v.info.ID != "" && (v.seq == 0 || seq < v.seq):
		return // it is from before the answer, or before what is known
	}
	v.info, v.seq = info, seq
}

// end takes over the end of the session: on request, nothing goes on.
func (v *view) end(session *Session, end *schemas.Event) {
	var last schemas.Session
	if end.Decode(&last) != nil {
		last = schemas.Session{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session != session || v.over != nil {
		return
	}
	v.worker, v.info.State, v.exit = last.Owner, schemas.SandboxTerminated, last.ExitCode
	switch {
	case end.Type == schemas.TypeSessionExpired:
	case last.ExitCode != nil:
		v.info.State = schemas.SandboxCompleted
		v.over = notRunning(session.thread, "its main command ended with exit code "+strconv.Itoa(*last.ExitCode))
	case last.State == schemas.SandboxFailed:
		v.info.State = schemas.SandboxFailed
		lost := schemas.Errorf(schemas.CodeLost, "the main command of thread %s was lost", session.thread)
		v.over = fmt.Errorf("%w: %w", ErrSandboxFailed, lost)
	default:
		v.over = terminated(schemas.Errorf(schemas.CodeSessionExpired, "a request ended session %s of thread %s", session.id, session.thread))
	}
}

// exitCode returns the exit code of the main command.
func (v *view) exitCode() (code int, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.exit == nil {
		return 0, false
	}
	return *v.exit, true
}

// stopped is the end of the session by the handle; last is its last state, nil when there was none.
func (v *view) stopped(thread string, last *schemas.Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.info.State = schemas.SandboxTerminated
	if last != nil {
		v.worker = last.Owner
	}
	v.over = notRunning(thread, "it was stopped")
}

// keeper returns the worker that may keep the workspace after the end; empty for none.
func (v *view) keeper() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.worker
}

// removed notes that no worker keeps the workspace.
func (v *view) removed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.worker = ""
}

// failure is why the sandbox failed.
func (v *view) failure(thread string) error {
	info := v.state()
	cause := cmp.Or(info.Error, schemas.Errorf(schemas.CodeUnavailable, "sandbox %s of thread %s failed", info.ID, thread))
	return fmt.Errorf("%w: %w", ErrSandboxFailed, cause)
}

// terminated is ErrSandboxTerminated with a cause.
func terminated(cause error) error { return fmt.Errorf("%w: %w", ErrSandboxTerminated, cause) }

// notRunning is ErrSandboxNotRunning with a cause.
func notRunning(thread, why string) error {
	return fmt.Errorf("%w: %w", ErrSandboxNotRunning, schemas.Errorf(schemas.CodeSessionExpired, "the sandbox of thread %s: %s", thread, why))
}
