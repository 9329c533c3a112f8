package zygote

import (
	"runtime"
	"syscall"
	"unsafe"
)

// SocketFD is the descriptor of the zygote's end of its socket, a seqpacket pair. A request is a Program with 1 to MaxFDs
// descriptors, of which the first is the report's pipe. The answer has AnswerSize bytes: the child's pid, or the negative errno, in
// four bytes, and the address of the child's page, for Continuation, in eight. The child's pidfd is sent with it.
const SocketFD = 3

// AnswerSize is an answer's size in bytes.
const AnswerSize = 12

// MaxFDs is the maximum number of descriptors sent with a program.
const MaxFDs = 8

const (
	sigSetmask = 2
	sigsetSize = 8
	sigIgnore  = 1
	lastSignal = 64
)

// Main answers the worker's requests until the worker is gone, waits for the children, and returns the exit code.
func Main() int {
	runtime.LockOSThread()
	// The zygote does one fork at a time.
	runtime.GOMAXPROCS(1)
	syscall.CloseOnExec(SocketFD)
	// With SIGCHLD ignored the kernel reaps the children. The worker watches them by their pidfds.
	action := [4]uint64{sigIgnore}
	if _, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0); e != 0 {
		return 125
	}
	buf := make([]byte, MaxProgram)
	oob := make([]byte, syscall.CmsgSpace(4*MaxFDs))
	// Every child has its own copy at the same address.
	next := new(page)
	for serve(buf, oob, next) {
	}
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR {
			return 0
		}
	}
}

// serve answers one request; false at the end of the requests.
func serve(buf, oob []byte, next *page) bool {
	n, oobn, flags, _, err := syscall.Recvmsg(SocketFD, buf, oob, syscall.MSG_CMSG_CLOEXEC)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || n == 0 {
		return false
	}
	fds := received(oob[:oobn])
	pid, pidfd := -int32(syscall.EINVAL), -1
	var p Program
	if flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) == 0 && len(fds) > 0 && p.Decode(buf[:n]) {
		pid, pidfd = start(&p, fds, next)
	}
	var rights []byte
	if pidfd >= 0 {
		rights = syscall.UnixRights(pidfd)
		fds = append(fds, pidfd)
	}
	answer := append64(append32(nil, uint32(pid)), uint64(uintptr(unsafe.Pointer(next))))
	err = syscall.Sendmsg(SocketFD, answer, rights, nil, syscall.MSG_NOSIGNAL)
	for _, fd := range fds {
		_ = syscall.Close(fd)
	}
	return err == nil
}

func received(oob []byte) (fds []int) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if more, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

// call is a Call whose arguments are resolved, but for those that kinds marks as a Register, or as an FD of a continuation.
// Continuation writes the same layout.
type call struct {
	number   uintptr
	args     [6]uintptr
	kinds    [6]byte
	save     byte
	optional bool
}

func start(p *Program, fds []int, next *page) (int32, int) {
	resolve := func(a Arg) (uint64, bool) {
		switch a.Kind {
		case Pointer:
			return uint64(uintptr(unsafe.Pointer(&p.Data[a.Value]))), true
		case FD:
			if a.Value >= uint64(len(fds)) {
				return 0, false
			}
			return uint64(fds[a.Value]), true
		default:
			return a.Value, true
		}
	}
	for _, patch := range p.Patches {
		v, ok := resolve(patch.Value)
		if !ok {
			return -int32(syscall.EBADF), -1
		}
		copy(p.Data[patch.At:], append64(nil, v))
	}
	calls := make([]call, len(p.Calls))
	for i := range p.Calls {
		from, to := &p.Calls[i], &calls[i]
		to.number, to.save, to.optional = uintptr(from.Number), from.Save, from.Optional
		for j, a := range from.Args {
			v, ok := resolve(a)
			if !ok {
				return -int32(syscall.EBADF), -1
			}
			to.args[j] = uintptr(v)
			if a.Kind == Register {
				to.kinds[j] = byte(Register)
			}
		}
	}
	f := &forkState{calls: calls, report: fds[0], pidfd: -1, page: next}
	f.into = syscall.Iovec{Base: (*byte)(unsafe.Pointer(next)), Len: uint64(unsafe.Sizeof(*next))}
	f.message = syscall.Msghdr{Iov: &f.into, Iovlen: 1, Control: &f.control[0], Controllen: uint64(len(f.control))}
	pid, e := f.fork(uintptr(p.Flags))
	runtime.KeepAlive(p.Data)
	if e != 0 {
		return -int32(e), -1
	}
	return int32(pid), int(f.pidfd)
}
