package hostproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/schemas"
)

// Ref identifies a process of this host. A provider embeds it in its record, so the JSON names are part of the registry's files.
type Ref struct {
	PID int `json:"pid,omitempty"`
	// Start is the start time in the kernel's ticks since boot; 0 where the system does not report one.
	Start uint64 `json:"start,omitempty"`
}

// RefOf returns the Ref of a process that this process has just started. Errors: unavailable when it has ended, even if it is not
// reaped yet, or when this process can open no more files.
func RefOf(pid int) (Ref, error) {
	start, err := startTime(pid)
	if shortage.Of(err) {
		return Ref{PID: pid}, shortage.Explain(err)
	}
	if err != nil {
		return Ref{PID: pid}, schemas.Errorf(schemas.CodeUnavailable, "supervisor %d exited right after its start: %w", pid, err)
	}
	return Ref{PID: pid, Start: start}, nil
}

// notOpened is the error of a process that could not be opened: that it has ended, unless this process lacks descriptors.
func (r Ref) notOpened(err error) error {
	if shortage.Of(err) {
		return shortage.Explain(fmt.Errorf("open supervisor %d: %w", r.PID, err))
	}
	return r.notFound(err)
}

func (r Ref) notFound(err error) error {
	return schemas.Errorf(schemas.CodeNotFound, "supervisor %d has exited: %w", r.PID, err)
}

// Process is a process that an earlier worker has started, so this one is not its parent.
type Process struct {
	handle handle
	// Gone is closed when the process has ended.
	Gone chan struct{}
}

// Find opens the process that a Ref identifies. Errors: not_found when it has ended.
func Find(r Ref) (*Process, error) {
	h, err := open(r)
	if err != nil {
		return nil, err
	}
	p := &Process{handle: h, Gone: make(chan struct{})}
	go func() {
		defer close(p.Gone)
		p.handle.wait()
	}()
	return p, nil
}

// Kill sends SIGKILL. It may be called after the process has ended.
func (p *Process) Kill() { p.handle.kill() }

const (
	busyTries = 50
	busyWait  = 2 * time.Millisecond
)

// Start starts a program in its own session, in /, with an empty environment and /dev/null as standard streams: it may outlive the
// worker, and a Ctrl+C at the worker's terminal must not reach it. files become the descriptors from 3 on, and it gets no others: what
// the worker inherited itself, such as an open file of the shell that started it, is closed in every program that it executes from then on.
//
// A program file that was written a moment ago may still be open for writing in a child that another thread has forked and that
// has not reached its exec yet. Start retries ETXTBSY 50 times, every 2 ms.
func Start(command []string, files ...*os.File) (*exec.Cmd, error) {
	if err := closeOnExec(); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env, cmd.Dir = []string{}, "/"
		cmd.ExtraFiles = files
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		err := cmd.Start()
		if err == nil {
			return cmd, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || try >= busyTries {
			return nil, err
		}
		time.Sleep(busyWait)
	}
}

// closeOnExec marks this process's descriptors above the standard streams: Go marks those that it opens, but not those that the process
// inherited. Commands have never had them; a supervisor beside them would keep them open.
func closeOnExec() error {
	open, err := os.ReadDir("/dev/fd")
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return err
}
