package hostproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KillCgroup kills every process of a sandbox's cgroup from outside, whatever they do to each other: its supervisor may not get the CPU to
// do so, or to end. dirs are the cgroup's folders: several with cgroups v1, one with v2. The limits of CPU time go first, since a process
// needs some to end. What is gone is no error.
func KillCgroup(dirs []string) {
	write := func(name, value string) (ok bool) {
		for _, dir := range dirs {
			// Most files are of one controller or one version.
			ok = os.WriteFile(filepath.Join(dir, name), []byte(value), 0) == nil || ok
		}
		return ok
	}
	write("cpu.cfs_quota_us", "-1")
	write("cpu.max", "max")
	if write("cgroup.kill", "1") { // Linux 5.14, v2
		return
	}
	write("pids.max", "0") // nothing is forked from here on
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
				killMember(pid, filepath.Base(dir))
			}
		}
	}
}

// killMember kills a process unless its pid is by now of one outside of the cgroup.
func killMember(pid int, cgroup string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	of, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err == nil && strings.Contains(string(of), "/"+cgroup+"\n") {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
