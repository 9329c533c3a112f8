package docker

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// oomCounter reads the kernel's counter of OOM kills in a container. The zero value has no counter.
type oomCounter struct {
	file *os.File // nil when there is none; then only the engine reports OOM kills

	mu      sync.Mutex
	claimed int64 // kills that were attributed to a process
}

// cgroupDirs returns the folders of a process's cgroups, given the content of /proc/PID/cgroup.
func cgroupDirs(cgroups []byte) (dirs []string) {
	for line := range strings.Lines(string(cgroups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		if controllers == "" {
			dirs = append(dirs, filepath.Join("/sys/fs/cgroup", path))
		}
		for name := range strings.SplitSeq(controllers, ",") {
			if name == "memory" || name == "cpu" || name == "pids" {
				dirs = append(dirs, filepath.Join("/sys/fs/cgroup", name, path))
			}
		}
	}
	return dirs
}

// openOOMCounter opens the counter of a process's cgroup, of version 1 or 2.
func openOOMCounter(pid int) *oomCounter {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return &oomCounter{}
	}
	f, err := os.Open(counterPath(b))
	if err != nil {
		return &oomCounter{}
	}
	return &oomCounter{file: f}
}

// counterPath returns the path of the counter's file, given the content of /proc/PID/cgroup.
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

// count returns the number of OOM kills so far; false when it is not available, or not any more.
func (c *oomCounter) count() (int64, bool) {
	if c.file == nil {
		return 0, false
	}
	// The file has a few short lines in both versions.
	b := make([]byte, 512)
	n, err := c.file.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0, false
	}
	return parseCount(b[:n])
}

func parseCount(b []byte) (int64, bool) {
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// claim attributes an OOM kill to a process that has ended, and reports whether there was one since the counter was before. Each kill
// is attributed to one process.
func (c *oomCounter) claim(before int64) bool {
	n, ok := c.count()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok || n <= max(before, c.claimed) {
		return false
	}
	c.claimed = max(before, c.claimed) + 1
	return true
}

func (c *oomCounter) close() {
	if c.file != nil {
		_ = c.file.Close() // it was only read
	}
}
