package zygote

import (
	"syscall"
	"unsafe"
)

const clonePidfd = 0x1000

// forkState is the memory of both sides of a fork, allocated before it.
type forkState struct {
	calls     []call
	report    int
	pidfd     int32
	all, old  uint64 // signal masks
	action    [4]uint64
	registers [Registers]uintptr
	failure   [2]uint32
	page      *page
	message   syscall.Msghdr // receives a continuation
	into      syscall.Iovec
	control   [control]byte
}

// page holds a continuation in the child.
type page struct {
	count uint64
	calls [(pageSize - 8) / callSize]call
}

// control is the size of a control message with MaxFDs descriptors.
const control = syscall.SizeofCmsghdr + 4*MaxFDs

// fork makes the child. Signals are blocked meanwhile: the runtime's handlers must not run in the child.
//
//go:noinline
//go:norace
//go:nosplit
func (f *forkState) fork(flags uintptr) (uintptr, syscall.Errno) {
	f.all = ^uint64(0)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&f.all)), uintptr(unsafe.Pointer(&f.old)), sigsetSize, 0, 0)
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, flags|clonePidfd|uintptr(syscall.SIGCHLD), 0, uintptr(unsafe.Pointer(&f.pidfd)), 0, 0, 0)
	if e == 0 && pid == 0 {
		f.child()
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&f.old)), 0, sigsetSize, 0, 0)
	return pid, e
}

// child runs the program and never returns.
//
//go:noinline
//go:norace
//go:nosplit
func (f *forkState) child() {
	// No signal may have a handler when signals are unblocked.
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&f.action)), 0, sigsetSize, 0, 0)
	}
	f.all = 0
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&f.all)), 0, sigsetSize, 0, 0)
	calls, before := f.calls, 0
	for i := 0; i < len(calls); i++ {
		c := &calls[i]
		for j := 0; j < len(c.args); j++ {
			switch c.kinds[j] {
			case byte(Register):
				c.args[j] = f.registers[c.args[j]%Registers]
			case byte(FD):
				c.args[j] = uintptr(*(*int32)(unsafe.Pointer(&f.control[syscall.SizeofCmsghdr+4*(c.args[j]%MaxFDs)])))
			}
		}
		if c.number == AwaitCalls {
			n := f.awaitCalls(c.args[0])
			if n == 0 {
				break
			}
			before += i + 1
			calls, i = f.page.calls[:n], -1
			continue
		}
		r, _, e := syscall.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		if e != 0 && !c.optional {
			f.failure[0], f.failure[1] = uint32(before+i), uint32(e)
			_, _, _ = syscall.RawSyscall6(syscall.SYS_WRITE, uintptr(f.report), uintptr(unsafe.Pointer(&f.failure)), ReportSize, 0, 0, 0)
			break
		}
		if c.save < Registers {
			f.registers[c.save] = r
		}
	}
	for {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, 125, 0, 0, 0, 0, 0)
	}
}

// awaitCalls receives a continuation and returns its number of calls; 0 when the other end is closed.
//
//go:noinline
//go:norace
//go:nosplit
func (f *forkState) awaitCalls(socket uintptr) int {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_RECVMSG, socket, uintptr(unsafe.Pointer(&f.message)), syscall.MSG_CMSG_CLOEXEC, 0, 0, 0)
		switch {
		case e == syscall.EINTR:
		case e != 0 || n < 8 || f.page.count > uint64(len(f.page.calls)) || 8+f.page.count*callSize > uint64(n):
			return 0
		default:
			return int(f.page.count)
		}
	}
}
