package supervisor

import (
	"os"
	"syscall"
	"unsafe"
)

// The numbers of Linux that package syscall does not have. Package unix has them, and makes the program a tenth larger.
const (
	prSetChildSubreaper = 36
	closeRange          = 436 // the same on every architecture
	closeRangeCloexec   = 1 << 2
	sigSetmask          = 2
	sigsetSize          = 8
	lastSignal          = 64
	fSetpipeSize        = 1031
	atEaccess           = 0x200
	waitAll             = 0 // P_ALL
	waitExited          = 4 // WEXITED
	waitNoReap          = 0x1000000
)

// rssUnit turns rusage's maxrss into bytes.
const rssUnit = 1024

const errBadLibrary = syscall.ELIBBAD

// adopt makes this process the one that inherits every orphan below it, with a plain signal state to pass on.
func adopt() (*table, error) {
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); e != 0 {
		return nil, os.NewSyscallError("become the reaper of orphans", e)
	}
	plainSignals()
	// Whatever this process was started with is not for its children. Old kernels lack the call, and then the starter's
	// own care has to do.
	_, _, _ = syscall.RawSyscall(closeRange, ListenFD+1, uintptr(^uint32(0)), closeRangeCloexec)
	return openTable(), nil
}

// plainSignals empties this thread's signal mask, which a fork copies, and gives the three signals that the runtime leaves
// alone their default action, which exec would otherwise keep as ignored.
func plainSignals() {
	var none [sigsetSize]byte
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&none)), 0, sigsetSize, 0, 0)
	for sig := syscall.Signal(32); sig <= 34; sig++ {
		defaultAction(sig)
	}
}

func defaultAction(sig syscall.Signal) {
	var action [32]byte // the kernel's struct; all zero is the default action
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0)
}

// childAttr: a session of its own, and death with the supervisor.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// watch wakes the reaper.
func (s *supervisor) watch(*process) {
	select {
	case s.forked <- struct{}{}:
	default:
	}
}

// reap waits for children, for ever. It looks without reaping, which needs no lock, and reaps with mu held, so that it never
// comes between a fork and the registration of what was forked.
func (s *supervisor) reap() {
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0, 0, waitExited|waitNoReap, 0, 0)
		if e == syscall.ECHILD {
			<-s.forked
			continue
		}
		s.mu.Lock()
		for {
			var status syscall.WaitStatus
			var usage syscall.Rusage
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
			if err == syscall.EINTR {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			if p := s.mains[pid]; p != nil {
				s.mainEnded(p, status, &usage)
			}
			delete(s.owners, pid)
		}
		s.sweep()
		s.mu.Unlock()
	}
}

func accept(fd int) (int, error) {
	c, _, err := syscall.Accept4(fd, syscall.SOCK_CLOEXEC)
	return c, err
}

// trusted says whether the other end is this user or root.
func trusted(fd int) bool {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == syscall.Geteuid())
}

func pipe() (r, w int, err error) {
	var p [2]int
	err = syscall.Pipe2(p[:], syscall.O_CLOEXEC)
	return p[0], p[1], err
}

// growPipe is refused to users who have many large pipes already; the pipe then stays as it is.
func growPipe(fd int) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), fSetpipeSize, bigPipe)
}

// growSocket makes room for several output frames. With the usual 208 KiB the supervisor and its host take turns, and output is
// half as fast. Without the right to force it, the system's own limit (net.core.wmem_max) is what there is.
func growSocket(fd int) {
	const bigSocket, sndbufForce = 2 << 20, 32
	if syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, sndbufForce, bigSocket) != nil {
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, bigSocket)
	}
}

func access(path string) error {
	const atFDCWD, mayExecute = -0x64, 1
	return syscall.Faccessat(atFDCWD, path, mayExecute, atEaccess)
}
