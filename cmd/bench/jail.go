package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	coldRounds  = 5
	coldRuns    = 20 // jails in each round
	dockerColds = 3  // containers in each round
	bwrapRounds = 15
	bwrapRuns   = 20

	outputRounds = 9
)

// jails starts a provider of jails. Errors: missing where this machine cannot run them.
func (b *bench) jails(context.Context) (*boxes, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	p, err := jail.New(jail.Config{RunDir: filepath.Join(dir, "run"), Warn: func(text string) { b.note("%s", text) }})
	if err != nil {
		return nil, skip(err, schemas.ErrUnavailable)
	}
	b.atEnd(p.Close)
	return &boxes{provider: p, dir: dir}, nil
}

// warmJail starts a jail.
func (b *bench) warmJail(ctx context.Context) (sandbox.Sandbox, error) {
	j, err := b.jails(ctx)
	if err != nil {
		return nil, err
	}
	return j.warm(ctx)
}

// jailCold is the time to create and start a container with the hardening of provider docker, over the time from the request for a
// jail to the end of its first command.
func jailCold(ctx context.Context, b *bench, j *boxes) (float64, error) {
	d, err := b.docker(ctx)
	if err != nil {
		return 0, err
	}
	return b.turns(ctx, coldRounds, side{"docker create and start", dockerColds, d.createAndStart}, side{"jail to its first true", coldRuns, j.create(firstTrue)})
}

// jailBwrap is the time of `true` in bubblewrap, without limits and system call filter, over the time from the request for a jail to
// the end of its first `true`.
func jailBwrap(ctx context.Context, b *bench, j *boxes) (float64, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return 0, missing(errors.New("bubblewrap is missing: apt-get install bubblewrap"))
	}
	workspace, err := b.folder()
	if err != nil {
		return 0, err
	}
	args := []string{"--unshare-all", "--ro-bind", "/usr", "/usr"}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			args = append(args, "--symlink", target, "/"+name)
		} else {
			args = append(args, "--ro-bind-try", "/"+name, "/"+name)
		}
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", workspace, "/workspace", "true")
	wrapped := func(ctx context.Context) error {
		if out, err := exec.CommandContext(ctx, bwrap, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	return b.turns(ctx, bwrapRounds, side{"bwrap true", bwrapRuns, timed(wrapped)}, side{"jail to its first true", bwrapRuns, j.create(firstTrue)})
}

// jailExec is the time of `true` in a running jail, over that by bare fork and exec with output read.
func jailExec(ctx context.Context, b *bench, s sandbox.Sandbox) (float64, error) {
	return b.turns(ctx, latencyRounds, side{"true in a jail", latencyRuns, timed(trueIn(s))}, side{"bare", latencyRuns, timed(bareRead("true"))})
}

// jailOutput is the MB/s of dd in a jail, read and acked as it comes, over those of a bare pipe.
func jailOutput(ctx context.Context, b *bench, s sandbox.Sandbox) (float64, error) {
	made := 0
	ratio, ours, bare, err := compare(ctx, outputRounds, func(ctx context.Context) (float64, error) {
		made++
		begin := time.Now()
		n, err := run(ctx, s, sandbox.Command{ID: fmt.Sprint("dd", made), Path: "dd", Args: ddArgs()})
		if err == nil && n != logBytes {
			err = fmt.Errorf("got %d bytes of output, want %d", n, logBytes)
		}
		return megabytes(n, begin), err
	}, barePipe)
	if err == nil {
		b.note("out of a jail %.0f MB/s, bare pipe %.0f MB/s", ours, bare)
	}
	return ratio, err
}

// jailIdle is the memory of an idle jail among many, in MB of PSS. The kernel's part is not in it: standard error shows it.
func jailIdle(ctx context.Context, b *bench, j *boxes) (float64, error) {
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
	begin = time.Now()
	err = b.closeAll()
	b.note("ended in %.1f s", time.Since(begin).Seconds())
	return sum / jails / 1e6, err
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
