package docker

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// tally counts the processes of a container that its memory limit ended, as the kernel does. The zero value counts none.
type tally struct {
	file *os.File // nil where it cannot be had: then the engine's word has to do

	mu   sync.Mutex
	told int64 // endings that were put down to the limit already
}

// openTally finds the counter of the cgroup that this process is in, in either version of cgroups.
func openTally(pid int) *tally {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return &tally{}
	}
	f, err := os.Open(counterPath(b))
	if err != nil {
		return &tally{}
	}
	return &tally{file: f}
}

// counterPath is the file that counts, given the content of /proc/PID/cgroup.
func counterPath(cgroups []byte) string {
	unified := ""
	for line := range strings.Lines(string(cgroups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(controllers, ",") {
			if name == "memory" {
				return filepath.Join("/sys/fs/cgroup/memory", path, "memory.oom_control")
			}
		}
		if controllers == "" {
			unified = filepath.Join("/sys/fs/cgroup", path, "memory.events")
		}
	}
	return unified
}

// count is how many the limit has ended so far; false when that cannot be told, or not any more.
func (t *tally) count() (int64, bool) {
	if t.file == nil {
		return 0, false
	}
	// A few short lines in either version.
	b := make([]byte, 512)
	n, err := t.file.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0, false
	}
	return parseCount(b[:n])
}

func parseCount(b []byte) (int64, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// claim says whether an ending can be put down to the limit, for a process that began when before had been ended by it, and if so,
// does it. Each one the kernel ended explains one process.
func (t *tally) claim(before int64) bool {
	n, ok := t.count()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok || n <= max(before, t.told) {
		return false
	}
	t.told = max(before, t.told) + 1
	return true
}

func (t *tally) close() {
	if t.file != nil {
		// Opened for reading: nothing can be lost.
		_ = t.file.Close()
	}
}
