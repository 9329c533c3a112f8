package hostproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KillCgroup kills every process of a sandbox's cgroup from outside, whatever they do to each other: its supervisor may not get the CPU to
// do so, or to end. dirs are the cgroup's folders: several with cgroups v1, one with v2. The limits of CPU time go first, since a process
// needs some to end. It reports whether each of them was killed or gone, which takes root: with no folders it has killed none.
func KillCgroup(dirs []string) (killed bool) {
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
		return true
	}
	write("pids.max", "0") // nothing is forked from here on
	killed = len(dirs) > 0
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil { // the cgroup may be removed before it is opened, or before it is read
			killed = killed && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV))
			continue
		}
		for _, pid := range initsFirst(pidsOf(b)) {
			killed = killMember(pid, filepath.Base(dir)) && killed
		}
	}
	return killed
}

// pidsOf returns the processes in cgroup.procs.
func pidsOf(procs []byte) (pids []int) {
	for line := range strings.Lines(string(procs)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// initsFirst moves the first process of a pid namespace to the front. It has the lowest pid only until pids are used again. As the supervisor
// it would see the others end, and report that they were killed, when their sandbox is lost.
func initsFirst(pids []int) []int {
	var inits, others []int
	for _, pid := range pids {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // of one that has ended nothing is known
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if in := strings.Fields(ids); len(in) > 1 && in[len(in)-1] == "1" {
			inits = append(inits, pid)
		} else {
			others = append(others, pid)
		}
	}
	return append(inits, others...)
}

// isMember reports whether a thread of the process is in the cgroup. Cgroups v1 do not show where a thread was that has ended, as the first one
// may have.
func isMember(pid int, cgroup string) bool {
	for _, files := range []string{"/proc/%d/cgroup", "/proc/%d/task/*/cgroup"} {
		paths, _ := filepath.Glob(fmt.Sprintf(files, pid)) // the pattern is valid
		for _, path := range paths {
			if of, err := os.ReadFile(path); err == nil && strings.Contains(string(of), "/"+cgroup+"\n") {
				return true
			}
		}
	}
	return false
}

// killMember kills a process unless its pid is by now of one outside of the cgroup. It reports whether the process was killed or is gone.
func killMember(pid int, cgroup string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // EINVAL, and ENOENT of later kernels: the pid is by now only that of a group or of a session
		return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
	}
	defer func() { _ = unix.Close(fd) }()
	if !isMember(pid, cgroup) {
		return true
	}
	err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	return err == nil || errors.Is(err, unix.ESRCH)
}
