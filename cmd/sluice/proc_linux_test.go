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

	"github.com/sluice-dev/sluice/internal/testkit"
)

// withArgument finds the processes that have this argument.
func withArgument(t *testing.T, arg string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testkit.Must(t, err)
	var out []int
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
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
		testkit.Must(t, err)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(waitTimeout/time.Millisecond))
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(waitTimeout/time.Millisecond))
		}
		if err != nil || n == 0 {
			t.Errorf("process %d still runs: %v", pid, err)
		}
		_ = unix.Close(fd)
	}
}
