package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a row of the process table.
type process struct {
	pid, parent int
	state       byte
	cmdline     string // words joined by blanks
	exe         string
}

// table reads the process table.
func table() map[int]process {
	all := make(map[int]process)
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // the name before it may hold anything
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		p := process{state: f[0][0]}
		p.pid, _ = strconv.Atoi(filepath.Base(dir)) // the pattern says that it is a number
		p.parent, _ = strconv.Atoi(f[1])
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // both are empty for a zombie
		p.cmdline = string(bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		p.exe, _ = os.Readlink(filepath.Join(dir, "exe"))
		all[p.pid] = p
	}
	return all
}

// below reports whether a process descends from another.
func below(all map[int]process, pid, ancestor int) bool {
	for range 64 { // a table that changes while it is read could have a loop
		p, ok := all[pid]
		if !ok {
			return false
		}
		if p.parent == ancestor {
			return true
		}
		pid = p.parent
	}
	return false
}

// sandboxes returns the supervisors of a worker's sandboxes, and its zygotes. It knows them by their program, which is in the worker's
// folder; a jail's supervisor has another name, and a zygote above it.
func sandboxes(folder string) (supervisors, zygotes []int) {
	all := table()
	ours := func(p process) bool {
		return strings.HasPrefix(p.exe, folder+"/") && strings.Contains(p.exe, "/supervisor-")
	}
	for pid, p := range all {
		if !below(all, pid, os.Getpid()) || p.state == 'Z' {
			continue
		}
		parent := all[p.parent]
		switch {
		case ours(p) && strings.HasSuffix(p.cmdline, " zygote"):
			if !strings.HasSuffix(parent.cmdline, " zygote") { // else a prestarted jail
				zygotes = append(zygotes, pid)
			}
		case ours(p), strings.HasPrefix(p.cmdline, "sluice-supervisor ") && ours(parent):
			supervisors = append(supervisors, pid)
		}
	}
	return supervisors, zygotes
}

// reap reaps the orphans that this program inherits: a worker that looks for its supervisor must not find a zombie.
func reap(known func(pid int) bool) {
	for pid, p := range table() {
		if p.parent == os.Getpid() && p.state == 'Z' && !known(pid) {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // another turn reaps it
		}
	}
}

// killAll kills every process below this one, until none is left or the patience ends. It returns how many are left.
func killAll(patience time.Duration) (left int) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		all := table()
		left = 0
		for pid, p := range all {
			if !below(all, pid, os.Getpid()) {
				continue
			}
			if p.state != 'Z' {
				left++
				_ = syscall.Kill(pid, syscall.SIGKILL)
			} else if p.parent == os.Getpid() {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
		if left == 0 || time.Now().After(end) {
			return left
		}
	}
}
