package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// int80 is a call by the table of 32-bit programs, which a filter that knows one table alone would not see.
func int80(number, a uintptr) uintptr

// The calls' numbers in that table.
const (
	int80Getpid  = 20
	int80Ptrace  = 26
	int80Unshare = 310
)

func otherTables() {
	forked("int80 getpid", func() uintptr { return int80(int80Getpid, 0) })
	forked("int80 ptrace", func() uintptr { return int80(int80Ptrace, unix.PTRACE_TRACEME) })
	forked("int80 unshare", func() uintptr { return int80(int80Unshare, unix.CLONE_NEWUSER) })
	forked("x32 getpid", func() uintptr {
		_, _, e := syscall.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
		return -uintptr(e)
	})
}
