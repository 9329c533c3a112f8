package hostproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// handle is a pidfd. It stays valid when the kernel reuses the pid.
type handle struct{ pidfd *os.File }

func open(r Ref) (handle, error) {
	f, err := OpenPIDFD(r)
	return handle{pidfd: f}, err
}

func (h handle) wait() {
	_ = WaitPIDFD(h.pidfd) // fails only on a closed descriptor, and only this method closes it
	_ = h.pidfd.Close()
}

func (h handle) kill() { KillPIDFD(h.pidfd) }

func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The process name may contain anything. Fields 3 and on follow its last parenthesis; see proc_pid_stat(5).
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const threads, field = 20 - 3, 22 - 3
	if len(fields) <= field {
		return 0, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	// The first thread of a process may be a zombie while the kernel holds another one of it.
	if zombie := fields[0][0] == 'Z' || fields[0][0] == 'X'; zombie && len(fields[threads]) == 1 && fields[threads][0] <= '1' {
		return 0, os.ErrNotExist
	}
	return strconv.ParseUint(string(fields[field]), 10, 64)
}

// OpenPIDFD opens a pidfd, on which a goroutine can wait without blocking a thread. Errors: not_found when the process has ended,
// unavailable when this process can open no more files.
func OpenPIDFD(r Ref) (*os.File, error) {
	if r.PID <= 0 {
		return nil, r.notFound(unix.ESRCH)
	}
	fd, err := unix.PidfdOpen(r.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, r.notOpened(err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Read after the pidfd is open: if another process had the pid by then, it also has another start time.
	now, err := startTime(r.PID)
	if err == nil && now != r.Start {
		err = unix.ESRCH
	}
	if err != nil {
		return nil, errors.Join(r.notOpened(err), f.Close())
	}
	return f, nil
}

// WaitPIDFD blocks until the process has ended. When it was the first process of a pid namespace, the whole namespace has ended.
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

// KillPIDFD sends SIGKILL. It ignores a process that has ended, and a closed descriptor.
func KillPIDFD(pidfd *os.File) {
	if raw, err := pidfd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}
