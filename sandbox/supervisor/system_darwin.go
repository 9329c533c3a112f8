package supervisor

import (
	"iter"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// rssUnit turns rusage's maxrss into bytes.
const rssUnit = 1

const errBadLibrary = syscall.EBADARCH

// executablePath returns the path of this program.
func executablePath() (string, error) { return os.Executable() }

// becomeReaper has nothing to do: on darwin launchd adopts orphans, and nothing notifies the supervisor of them.
func becomeReaper() (*processTable, error) { return &processTable{}, nil }

// childAttr gives a child a new session, with its standard input as the controlling terminal where it has one.
func childAttr(terminal bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
}

// openTerminal makes a terminal.
func openTerminal() (ours, childs int, err error) {
	ours, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, none, err
	}
	var name [128]byte
	for _, request := range []uintptr{unix.TIOCPTYGRANT, unix.TIOCPTYUNLK, unix.TIOCPTYGNAME} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(ours), request, uintptr(unsafe.Pointer(&name))); e != 0 {
			syscall.Close(ours)
			return none, none, e
		}
	}
	childs, err = unix.Open(unix.ByteSliceToString(name[:]), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		syscall.Close(ours)
		return none, none, err
	}
	return ours, childs, nil
}

// setSize changes the size of a terminal. The kernel sends SIGWINCH to its foreground group.
func setSize(terminal int, rows, cols uint32) error {
	return unix.IoctlSetWinsize(terminal, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)})
}

func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// watch waits for one process. A wait for any child would take those whose exec failed from syscall.ForkExec.
func (t *trees) watch(p *process) {
	go func() {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		for {
			_, err := syscall.Wait4(p.pid, &status, 0, &usage)
			if err != syscall.EINTR {
				break
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.reaped(p, status, &usage)
		t.sweep()
	}()
}

// reap has nothing to do: watch waits for each process.
func (t *trees) reap() {}

// orphans are the processes that ended ones left in their groups. A process that left its group is found only while its ancestors
// live. mu is held.
func (t *trees) orphans() (pids []int) {
	for _, p := range t.sweeping {
		members, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", p.pid)
		if err != nil {
			continue
		}
		for i := range members {
			if pid := int(members[i].Proc.P_pid); members[i].Proc.P_stat != zombieState {
				t.owners[pid] = p
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
func (t *processTable) walk(roots iter.Seq[int], visit func(pid int) life) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	below := make(map[int][]int)
	if err == nil {
		for i := range all {
			parent := int(all[i].Eproc.Ppid)
			below[parent] = append(below[parent], int(all[i].Proc.P_pid))
		}
	}
	queue := slices.Collect(roots)
	for i := 0; i < len(queue); i++ {
		visit(queue[i])
		queue = append(queue, below[queue[i]]...)
	}
}

// usage is not measured here.
func (t *processTable) usage(iter.Seq[int]) (wire.Usage, bool) { return wire.Usage{}, false }

// session is unknown here: orphans records the owners.
func (t *processTable) session(int) (int, bool) { return 0, false }

// owner is empty here: orphans records the owners by their group.
func (t *processTable) owner(int) (id string, later bool) { return "", false }

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
