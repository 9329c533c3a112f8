package main

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootOn replaces this process with the kernel, which runs as a program. On a processor with AMX that kernel cannot set the registers
// of its programs: its room for them has a fixed size. Without the call that reads all registers it keeps those of SSE alone, as on old
// hosts.
func bootOn(kernel string, args []string) error {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PTRACE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // its first argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PTRACE_GETREGSET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("drop privileges of programs: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); e != 0 {
		return fmt.Errorf("install the filter: %w", e)
	}
	return unix.Exec(kernel, append([]string{kernel}, args...), os.Environ())
}
