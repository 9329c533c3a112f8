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

// jailIdle is the memory of an idle jail among many, in MB of PSS. The kernel's part is not in it: standard error shows it.
func jailIdle(ctx context.Context, b *bench) (_ float64, err error) {
	j, closeJails, err := b.jails()
	if err != nil {
		return 0, err
	}
	defer func() {
		begin := time.Now()
		err = errors.Join(err, closeJails())
		b.note("ended in %.1f s", time.Since(begin).Seconds())
	}()
	before, err := freeMemory()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for range b.idle {
		if _, err := j.provider.Create(ctx, j.spec()); err != nil {
			return 0, fmt.Errorf("create jail %d: %w", j.made, err)
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
		return 0, fmt.Errorf("%d supervisors run, want %d", n, b.idle)
	}
	jails := float64(b.idle)
	b.note("%d jails created in %.1f s; %.2f MB of PSS each, %.2f MB each with the kernel's part (less what other programs freed meanwhile)",
		b.idle, took.Seconds(), sum/jails/1e6, (before-after)/jails/1e6)
	return sum / jails / 1e6, nil
}

// supervisorMemory adds up the PSS of the processes that this process's zygotes have started, in bytes, and counts them: supervisors
// and prestarted jails.
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
			return 0, 0, fmt.Errorf("/proc/%d/smaps_rollup has no Pss", pid)
		}
		sum, n = sum+pss*1024, n+1
	}
	return sum, n, nil
}

// freeMemory is the available memory of the machine, in bytes.
func freeMemory() (float64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	kib, ok := field(string(b), "MemAvailable:")
	if !ok {
		return 0, errors.New("/proc/meminfo has no MemAvailable")
	}
	return kib * 1024, nil
}

// field is the number after a name at the start of a line.
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
