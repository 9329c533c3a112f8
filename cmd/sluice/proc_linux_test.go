package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// withArgument finds the processes that were started with an argument, which must be found nowhere else.
func withArgument(t *testing.T, arg string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil {
			continue // it has gone
		}
		for _, a := range bytes.Split(line, []byte{0}) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && string(a) == arg && pid != os.Getpid() {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// waitGone waits until processes have ended.
func waitGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience/time.Millisecond))
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience/time.Millisecond))
		}
		if err != nil || n == 0 {
			t.Errorf("process %d is still there: %v", pid, err)
		}
		_ = unix.Close(fd)
	}
}
