package supervisor

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rssUnit turns rusage's maxrss into bytes.
const rssUnit = 1

const errBadLibrary = syscall.EBADARCH

// adopt has nothing to do: on darwin orphans go to launchd, and there is no way to be told of them.
func adopt() (*table, error) { return &table{}, nil }

// childAttr: a session of its own.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// watch waits for one process. Waiting for any would take the children whose exec failed from under syscall.ForkExec.
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
		s.mainEnded(p, status, &usage)
		s.sweep()
	}()
}

// reap has nothing to do: each process is waited for by itself.
func (s *supervisor) reap() {}

// strays are what the processes that have ended left in their groups. What left its group is found only while its ancestors
// live. mu is held.
func (s *supervisor) strays() (pids []int) {
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

// zombieState is SZOMB of sys/proc.h.
const zombieState = 5

// table asks the kernel for what /proc would tell elsewhere.
type table struct{}

// walk visits these and all their descendants.
func (t *table) walk(pids []int, visit func(pid int)) {
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

// session is not told here; owners of strays are known when they are listed.
func (t *table) session(int) (int, bool) { return 0, false }

// owner could be read from kern.procargs2; the group has said it already.
func (t *table) owner(int) string { return "" }

// zombie says whether a process has ended already, or is not there.
func (t *table) zombie(pid int) bool {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err != nil || info.Proc.P_stat == zombieState
}

func accept(fd int) (int, error) {
	// Not under the fork lock, which a wait for a connection would hold for ever: a child forked between the two calls
	// would see the connection as a descriptor more.
	c, _, err := syscall.Accept(fd)
	if err == nil {
		syscall.CloseOnExec(c)
	}
	return c, err
}

// trusted says whether the other end is this user or root.
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

// growPipe has nothing to do: darwin sizes pipes by itself.
func growPipe(int) {}

// growSocket makes room for several output frames, as far as the system allows.
func growSocket(fd int) { _ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 2<<20) }

func access(path string) error { return unix.Access(path, unix.X_OK) }
