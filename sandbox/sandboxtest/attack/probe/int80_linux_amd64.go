package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// int80 makes a call by the numbers of 32-bit programs, which a filter for one table of numbers misses.
func int80(number, a uintptr) uintptr

// The numbers of calls in 32-bit programs.
const (
	int80Getpid  = 20
	int80Ptrace  = 26
	int80Unshare = 310
)

func tables() {
	tryForked("int80 getpid", func() uintptr { return int80(int80Getpid, 0) })
	tryForked("int80 ptrace", func() uintptr { return int80(int80Ptrace, unix.PTRACE_TRACEME) })
	tryForked("int80 unshare", func() uintptr { return int80(int80Unshare, unix.CLONE_NEWUSER) })
	tryForked("x32 getpid", func() uintptr {
		_, _, e := syscall.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
		return -uintptr(e)
	})
}
