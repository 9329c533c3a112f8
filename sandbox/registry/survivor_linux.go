package registry

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// survivor is a process by a descriptor, which stays its own whatever becomes of its number.
type survivor struct {
	pidfd *os.File
	mu    *sync.Mutex
}

func find(pid int, start uint64) (survivor, error) {
	f, err := OpenPID(pid, start)
	return survivor{pidfd: f, mu: &sync.Mutex{}}, err
}

func (s survivor) wait() {
	_ = WaitPIDFD(s.pidfd) // it can only say that the descriptor was closed, which nobody does before
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.pidfd.Close()
}

func (s survivor) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	KillPIDFD(s.pidfd)
}

// StartTime is when a supervisor was started, in the kernel's ticks since it was booted: with its id, that names it. Errors:
// unavailable when it has ended, even if nobody has waited for it yet.
func StartTime(pid int) (uint64, error) {
	start, err := startTime(pid)
	if err != nil {
		return 0, schemas.Errorf(schemas.CodeUnavailable, "supervisor %d ended as soon as it was started: %w", pid, err)
	}
	return start, nil
}

func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name may hold anything; after its last parenthesis come fields 3 and on.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const field = 22 - 3
	if len(fields) <= field {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, os.ErrNotExist
	}
	return strconv.ParseUint(string(fields[field]), 10, 64)
}

// OpenPID gives a pidfd, on which one can wait without a thread, of the process that has this id and was started then. Errors:
// not_found when it has ended.
func OpenPID(pid int, start uint64) (*os.File, error) {
	gone := func(err error) error {
		return schemas.Errorf(schemas.CodeNotFound, "supervisor %d has ended: %w", pid, err)
	}
	if pid <= 0 {
		return nil, gone(unix.ESRCH)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, gone(err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Looked at after the descriptor is there: had the number been another's by then, so would be the time.
	now, err := startTime(pid)
	if err == nil && now != start {
		err = unix.ESRCH // the number is another's by now
	}
	if err != nil {
		return nil, errors.Join(gone(err), f.Close())
	}
	return f, nil
}

// WaitPIDFD blocks until a process has ended, and everything with it where it was the first of a pid namespace.
func WaitPIDFD(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0
	})
}

// KillPIDFD ends a process. It may have ended by itself, or be closed already: both are what is wanted.
func KillPIDFD(pidfd *os.File) {
	if raw, err := pidfd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}
