package supervisor

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// rssUnit turns rusage's maxrss into bytes.
const rssUnit = 1

const errBadLibrary = syscall.EBADARCH

// becomeReaper has nothing to do: on darwin launchd adopts orphans, and nothing notifies the supervisor of them.
func becomeReaper() (*processTable, error) { return &processTable{}, nil }

// childAttr gives a child a new session.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// watch waits for one process. A wait for any child would take those whose exec failed from syscall.ForkExec.
func (s *supervisor) watch(p *process) {
	go func() {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		for {
			_, err := syscall.Wait4(p.pid, &status, 0, &usage)
			if err != syscall.EINTR {
				break
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reaped(p, status, &usage)
		s.sweep()
	}()
}

// reap has nothing to do: watch waits for each process.
func (s *supervisor) reap() {}

// orphans are the processes that ended ones left in their groups. A process that left its group is found only while its ancestors
// live. mu is held.
func (s *supervisor) orphans() (pids []int) {
	for _, p := range s.sweeping {
		members, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", p.pid)
		if err != nil {
			continue
		}
		for i := range members {
			if pid := int(members[i].Proc.P_pid); members[i].Proc.P_stat != zombieState {
				s.owners[pid] = p
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// The states SSTOP and SZOMB of sys/proc.h.
const (
	stoppedState = 4
	zombieState  = 5
)

// processTable reads the kernel's table by sysctl.
type processTable struct{}

// walk visits these processes and all their descendants.
func (t *processTable) walk(pids []int, visit func(pid int)) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	below := make(map[int][]int)
	if err == nil {
		for i := range all {
			parent := int(all[i].Eproc.Ppid)
			below[parent] = append(below[parent], int(all[i].Proc.P_pid))
		}
	}
	queue := append([]int(nil), pids...)
	for i := 0; i < len(queue); i++ {
		visit(queue[i])
		queue = append(queue, below[queue[i]]...)
	}
}

// usage is not measured here.
func (t *processTable) usage([]int) (wire.Usage, bool) { return wire.Usage{}, false }

// session is unknown here: orphans records the owners.
func (t *processTable) session(int) (int, bool) { return 0, false }

// owner is empty here: orphans records the owners by their group.
func (t *processTable) owner(int) string { return "" }

// life is what the process can still do.
func (t *processTable) life(pid int) life {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	switch {
	case err != nil || info.Proc.P_stat == zombieState:
		return gone
	case info.Proc.P_stat == stoppedState:
		return stopped
	}
	return running
}

func accept(fd int) (int, error) {
	// Without the fork lock, which a wait for a connection would hold for ever. A child forked between the two calls would
	// inherit the connection.
	c, _, err := syscall.Accept(fd)
	if err == nil {
		syscall.CloseOnExec(c)
	}
	return c, err
}

// trusted reports whether the peer is this user or root.
func trusted(fd int) bool {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
}

func pipe() (r, w int, err error) {
	var p [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err = syscall.Pipe(p[:]); err == nil {
		syscall.CloseOnExec(p[0])
		syscall.CloseOnExec(p[1])
	}
	return p[0], p[1], err
}

// growPipe has nothing to do: darwin sizes pipes itself.
func growPipe(int) {}

// growSocket makes room for several output frames, as far as the system allows.
func growSocket(fd int) { _ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 2<<20) }

func access(path string) error { return unix.Access(path, unix.X_OK) }
