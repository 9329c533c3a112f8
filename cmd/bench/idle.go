package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// jailIdle is what a jail in which nothing runs costs in memory, in MB of PSS, with many there at once. The kernel's own part is
// not in it: that is told beside it.
func jailIdle(ctx context.Context, b *bench) (_ float64, err error) {
	j, closeJails, err := b.jails()
	if err != nil {
		return 0, err
	}
	defer func() {
		begin := time.Now()
		err = errors.Join(err, closeJails())
		b.say("ended in %.1f s", time.Since(begin).Seconds())
	}()
	before, err := freeMemory()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for range b.idle {
		if _, err := j.provider.Create(ctx, j.spec()); err != nil {
			return 0, fmt.Errorf("after %d jails: %w", j.made-1, err)
		}
	}
	took := time.Since(begin)
	after, err := freeMemory()
	if err != nil {
		return 0, err
	}
	sum, n, err := supervisorMemory()
	if err != nil {
		return 0, err
	}
	if n < b.idle {
		return 0, fmt.Errorf("%d supervisors are there, of %d", n, b.idle)
	}
	jails := float64(b.idle)
	b.say("%d jails made in %.1f s; %.2f MB of PSS each, %.2f MB each with the kernel's part (less what others on this machine gave back)",
		b.idle, took.Seconds(), sum/jails/1e6, (before-after)/jails/1e6)
	return sum / jails / 1e6, nil
}

// supervisorMemory adds up the PSS of what this process's zygotes have started, in bytes, and counts it: the supervisors, and the
// jails that are begun ahead.
func supervisorMemory() (sum float64, n int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0, err
	}
	parents := make(map[int]int)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
			if ppid, ok := field(string(status), "PPid:"); ok {
				parents[pid] = int(ppid)
			}
		}
	}
	for pid, parent := range parents {
		if parents[parent] != os.Getpid() {
			continue
		}
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, 0, err
		}
		pss, ok := field(string(rollup), "Pss:")
		if !ok {
			return 0, 0, fmt.Errorf("process %d does not tell its PSS", pid)
		}
		sum, n = sum+pss*1024, n+1
	}
	return sum, n, nil
}

// freeMemory is what the machine has left, in bytes.
func freeMemory() (float64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	kib, ok := field(string(b), "MemAvailable:")
	if !ok {
		return 0, errors.New("/proc/meminfo does not tell what is available")
	}
	return kib * 1024, nil
}

// field is the number after a name at the beginning of a line.
func field(text, name string) (float64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				n, err := strconv.ParseFloat(words[0], 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}
