package supervisor

import (
	"os"
	"syscall"
	"unsafe"
)

// Constants of Linux that package syscall lacks. Package unix has them, but makes the program a tenth larger.
const (
	prSetChildSubreaper = 36
	closeRange          = 436 // the same on every architecture
	closeRangeCloexec   = 1 << 2
	sigSetmask          = 2
	sigsetSize          = 8
	lastSignal          = 64
	fSetpipeSize        = 1031
	openPeer            = 0x5441 // TIOCGPTPEER
	atEaccess           = 0x200
	waitAll             = 0 // P_ALL
	waitExited          = 4 // WEXITED
	waitNoReap          = 0x1000000
)

// rssUnit turns rusage's maxrss into bytes.
const rssUnit = 1024

const errBadLibrary = syscall.ELIBBAD

// executablePath returns the path of this program, which a child too can use between fork and exec: no process of a sandbox need see it.
func executablePath() (string, error) { return "/proc/self/exe", nil }

// becomeReaper makes this process the parent of every orphan below it, and resets the signal state that children inherit.
func becomeReaper() (*processTable, error) {
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); e != 0 {
		return nil, os.NewSyscallError("prctl child subreaper", e)
	}
	resetSignals()
	// Children must not inherit this process's other descriptors. Old kernels lack the call; there the starter must not leak any.
	_, _, _ = syscall.RawSyscall(closeRange, ListenFD+1, uintptr(^uint32(0)), closeRangeCloexec)
	return openTable(), nil
}

// resetSignals empties this thread's signal mask, which a fork copies, and gives the three signals without a handler of the
// runtime their default action: exec would keep them ignored.
func resetSignals() {
	var none [sigsetSize]byte
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&none)), 0, sigsetSize, 0, 0)
	for sig := syscall.Signal(32); sig <= 34; sig++ {
		defaultAction(sig)
	}
}

// action is the kernel's struct: a handler, flags, the way back from the handler, and the signals that it blocks. All zero is the default action.
type action [4]uintptr

func defaultAction(sig syscall.Signal) { setAction(sig, new(action)) }

// noAction has a signal handled by doing nothing, otherwise as the runtime handles its own.
func noAction(sig syscall.Signal) {
	a := new(action)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGURG), 0, uintptr(unsafe.Pointer(a)), sigsetSize, 0, 0)
	a[0] = handler()
	setAction(sig, a)
}

func setAction(sig syscall.Signal, a *action) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(a)), 0, sigsetSize, 0, 0)
}

// childAttr gives a child a new session, with its standard input as the controlling terminal where it has one, and SIGKILL at the
// supervisor's death.
func childAttr(terminal bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: terminal, Pdeathsig: syscall.SIGKILL}
}

// openTerminal makes a terminal. The kernel opens the child's end by itself: a path to it could lead elsewhere.
func openTerminal() (ours, childs int, err error) {
	ours, err = syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return none, none, err
	}
	var locked int32
	_, _, e := syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(ours), syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&locked)))
	fd := uintptr(0)
	if e == 0 {
		fd, _, e = syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(ours), openPeer, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
	}
	if e != 0 {
		syscall.Close(ours)
		return none, none, e
	}
	return ours, int(fd), nil
}

// setSize changes the size of a terminal. The kernel sends SIGWINCH to its foreground group.
func setSize(terminal int, rows, cols uint32) error {
	size := [4]uint16{uint16(rows), uint16(cols)}
	if _, _, e := syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(terminal), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size))); e != 0 {
		return e
	}
	return nil
}

func duplicate(fd int) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if e != 0 {
		return none, e
	}
	return int(n), nil
}

func (t *trees) watch(*process) {
	select {
	case t.forked <- struct{}{}:
	default:
	}
}

// reap waits for children. It does not return. It waits without reaping, which needs no lock, and reaps with mu held, so that it
// never runs between a fork and the registration of the child.
func (t *trees) reap() {
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0, 0, waitExited|waitNoReap, 0, 0)
		if e == syscall.ECHILD {
			<-t.forked
			continue
		}
		t.mu.Lock()
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
			if p := t.running[pid]; p != nil {
				t.reaped(p, status, &usage)
			}
			delete(t.owners, pid)
			delete(t.table.refused, pid)
		}
		t.sweep()
		t.mu.Unlock()
	}
}

func accept(fd int) (int, error) {
	c, _, err := syscall.Accept4(fd, syscall.SOCK_CLOEXEC)
	return c, err
}

// trusted reports whether the peer is this user or root.
func trusted(fd int) bool {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	return err == nil && (cred.Uid == 0 || int(cred.Uid) == syscall.Geteuid())
}

func pipe() (r, w int, err error) {
	var p [2]int
	err = syscall.Pipe2(p[:], syscall.O_CLOEXEC)
	return p[0], p[1], err
}

// growPipe makes a pipe larger. The kernel refuses it to users that have many large pipes; the pipe then keeps its size.
func growPipe(fd int) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), fSetpipeSize, largePipe)
}

// growSocket makes room for several output frames. With the usual 208 KiB the supervisor and its host take turns, and output is
// half as fast. Without the right to force the size, the system's limit (net.core.wmem_max) applies.
func growSocket(fd int) {
	const largeSocket, sndbufForce = 2 << 20, 32
	if syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, sndbufForce, largeSocket) != nil {
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, largeSocket)
	}
}

func access(path string) error {
	const atFDCWD, mayExecute = -0x64, 1
	return syscall.Faccessat(atFDCWD, path, mayExecute, atEaccess)
}
