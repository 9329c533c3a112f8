package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
)

func main() {
	gateway.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{pushed: map[string]bool{}, walls: map[string]time.Duration{}}
	var dir string
	flag.StringVar(&b.sluice, "sluice", "", "the sluice binary (required)")
	flag.StringVar(&b.rclone, "rclone", "rclone", "the rclone binary; \"\" prints only seconds")
	flag.StringVar(&b.s5cmd, "s5cmd", "", "the s5cmd binary; \"\" leaves it out")
	flag.StringVar(&dir, "dir", "", "parent folder of the data (default the system's temporary folder)")
	flag.IntVar(&b.runs, "runs", 3, "runs of each workload, of which the median is printed")
	flag.StringVar(&b.only, "only", "", "run only the workloads whose name contains this")
	flag.Parse()
	if err := b.main(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) main(ctx context.Context, dir string) error {
	if b.sluice == "" {
		return fmt.Errorf("no sluice binary given: use -sluice PATH")
	}
	for _, tool := range []*string{&b.sluice, &b.rclone, &b.s5cmd} {
		if *tool == "" {
			continue
		}
		found, err := exec.LookPath(*tool)
		if err != nil {
			return fmt.Errorf("%w: install the peers with go install github.com/rclone/rclone@v1.75.1, "+
				"go install github.com/peak/s5cmd/v2@v2.3.0", err)
		}
		if *tool, err = filepath.Abs(found); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(dir, "bench-sync-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b.dir = dir
	if b.server, err = gateway.Start(gateway.Versity, filepath.Join(dir, "server")); err != nil {
		return err
	}
	defer func() { _ = b.server.Stop() }()
	for _, w := range workloads() {
		if !strings.Contains(w.name, b.only) {
			continue
		}
		if err := b.measure(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

type tool string

const (
	sluice tool = "sluice"
	rclone tool = "rclone"
	s5cmd  tool = "s5cmd"
)

// bench runs workloads. Each tool has its own copy of the data and its own prefix.
type bench struct {
	sluice, rclone, s5cmd string // binaries; a peer that is "" is left out

	dir     string
	runs    int
	only    string
	server  *gateway.Server
	ctx     context.Context
	now     workload
	pushed  map[string]bool
	cleared int
	walls   map[string]time.Duration // of Sluice, by workload
}

type cost struct {
	wall, cpu time.Duration
	system    time.Duration // the kernel's part of cpu
	memory    int64         // bytes
	sent      int64         // bytes of the bodies of Sluice's requests
	requests  int64         // of Sluice
}

func (b *bench) source(t tool) string {
	return filepath.Join(b.dir, "source", b.now.data.name(), string(t))
}

func (b *bench) copyDir(t tool) string { return filepath.Join(b.dir, "copy", string(t)) }

func (b *bench) prefix(t tool) string { return string(t) + "-" + b.now.data.name() + b.now.layout }

func (b *bench) remoteDir(t tool) string { return filepath.Join(b.server.Dir, b.prefix(t)) }

func (b *bench) forget(t tool) error {
	delete(b.pushed, b.prefix(t))
	for _, name := range []string{".sandbox-state", ".sandbox-state.index"} {
		if err := os.Remove(filepath.Join(b.source(t), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// clear removes a folder, but moves one of many files away instead, until the end: for minutes an ext4 without a journal searches all
// inodes that were removed near a new one, for each file that is created. That took most of the time of a pull.
func (b *bench) clear(dir string) error {
	if b.now.data.files < 1000 {
		return os.RemoveAll(dir)
	}
	b.cleared++
	err := os.Rename(dir, filepath.Join(b.dir, fmt.Sprint("cleared-", b.cleared)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// fetchMemory makes the kernel cache as many bytes as the data has, and drop them.
func (b *bench) fetchMemory() error {
	path := filepath.Join(b.dir, "scratch")
	if err := writeFile(path, zeros{}, b.now.data.files*b.now.data.size); err != nil {
		return err
	}
	return os.Remove(path)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func (b *bench) ensurePushed(t tool) error {
	if b.pushed[b.prefix(t)] {
		return nil
	}
	_, err := b.run(t, false)
	b.pushed[b.prefix(t)] = err == nil
	return err
}

func (b *bench) command(t tool, pull bool) *exec.Cmd {
	var cmd *exec.Cmd
	dir := b.source(t)
	if pull {
		dir = b.copyDir(t)
	}
	switch t {
	case sluice:
		args := []string{"sync", "push"}
		if pull {
			args[1] = "pull"
		}
		args = append(args, dir, "s3://"+gateway.Bucket+"/"+b.prefix(t), "--endpoint", b.server.Endpoint, "--json")
		if b.now.layout != "" {
			args = append(args, "--layout", b.now.layout)
		}
		cmd = exec.CommandContext(b.ctx, b.sluice, args...)
	case rclone:
		from, to := dir, "bench:"+gateway.Bucket+"/"+b.prefix(t)
		if pull {
			from, to = to, from
		}
		cmd = exec.CommandContext(b.ctx, b.rclone, "sync", from, to,
			"--transfers", "64", "--checkers", "64", "--fast-list", "--checksum", "--s3-no-check-bucket")
	case s5cmd: // has no comparison by checksum: it detects a changed file of the same size by its time
		from, to := dir+"/", "s3://"+gateway.Bucket+"/"+b.prefix(t)+"/"
		if pull {
			from, to = to+"*", dir+"/"
		}
		cmd = exec.CommandContext(b.ctx, b.s5cmd, "--endpoint-url", b.server.Endpoint, "--log", "error", "sync", from, to)
	}
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	cmd.Env = append(environ, "AWS_ACCESS_KEY_ID="+gateway.AccessKey, "AWS_SECRET_ACCESS_KEY="+gateway.SecretKey,
		"AWS_REGION=us-east-1", "RCLONE_CONFIG="+filepath.Join(b.dir, "rclone.conf"), "RCLONE_CONFIG_BENCH_TYPE=s3",
		"RCLONE_CONFIG_BENCH_PROVIDER=Other", "RCLONE_CONFIG_BENCH_ENDPOINT="+b.server.Endpoint,
		"RCLONE_CONFIG_BENCH_ACCESS_KEY_ID="+gateway.AccessKey, "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY="+gateway.SecretKey,
		"RCLONE_CONFIG_BENCH_REGION=us-east-1", "RCLONE_CONFIG_BENCH_FORCE_PATH_STYLE=true")
	return cmd
}

func (b *bench) run(t tool, pull bool) (cost, error) {
	cmd := b.command(t, pull)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	c := cost{wall: time.Since(began)}
	if err != nil {
		return c, fmt.Errorf("%s: %w\n%s", t, err, append(stdout.Bytes(), stderr.Bytes()...))
	}
	c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	c.system = cmd.ProcessState.SystemTime()
	var report struct {
		Sent     int64 `json:"request_bytes"`
		Requests int64 `json:"requests"`
	}
	if t == sluice {
		if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
			return c, fmt.Errorf("%s: %w\n%s", t, err, stdout.Bytes())
		}
		c.sent, c.requests = report.Sent, report.Requests
	}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.memory = u.Maxrss << 10
	}
	return c, nil
}

// measure runs one workload for all tools in turn and prints its lines: each figure over the best peer's.
func (b *bench) measure(ctx context.Context, w workload) error {
	b.ctx, b.now = ctx, w
	tools := []tool{sluice}
	if b.rclone != "" {
		tools = append(tools, rclone)
	}
	if b.s5cmd != "" {
		tools = append(tools, s5cmd)
	}
	if w.wall == 0 {
		tools = tools[:1] // its goals are for Sluice alone
	}
	peers := tools[1:]
	costs := map[tool][]cost{}
	for _, t := range tools {
		if _, err := os.Stat(b.source(t)); errors.Is(err, fs.ErrNotExist) {
			if err := w.data.write(b.source(t)); err != nil {
				return err
			}
		}
	}
	for run := range b.runs {
		for _, t := range tools {
			// The run must not pay for earlier writes, nor for memory that a virtual machine has returned to its host.
			if !w.cold {
				if err := b.ensurePushed(t); err != nil {
					return err
				}
			}
			syscall.Sync()
			if err := w.before(b, t, run); err != nil {
				return err
			}
			if err := b.fetchMemory(); err != nil {
				return err
			}
			c, err := b.run(t, w.pull)
			if err != nil {
				return err
			}
			costs[t] = append(costs[t], c)
		}
	}
	s := median(costs[sluice])
	fmt.Printf("# %s: sluice %s", w.name, s)
	r := cost{}
	for i, t := range peers {
		m := median(costs[t])
		fmt.Printf("; %s %s", t, m)
		if i == 0 {
			r = m
		}
		r.wall, r.cpu, r.memory = min(r.wall, m.wall), min(r.cpu, m.cpu), min(r.memory, m.memory)
	}
	fmt.Println()
	b.walls[w.name] = s.wall
	b.alone(w, s)
	if len(peers) == 0 {
		return nil
	}
	line(w.name, r.wall.Seconds()/s.wall.Seconds(), w.wall, true)
	line(w.name+"-cpu", s.cpu.Seconds()/r.cpu.Seconds(), w.cpu, false)
	if w.memory > 0 {
		line(w.name+"-memory", float64(s.memory)/float64(r.memory), w.memory, false)
	}
	return nil
}

// alone prints the lines of goals that do not depend on peers.
func (b *bench) alone(w workload, s cost) {
	if w.sent > 0 {
		line(w.name+"-sent-kB", float64(s.sent)/1000, w.sent, false)
	}
	if w.requests > 0 {
		line(w.name+"-requests", float64(s.requests), w.requests, false)
	}
	if w.peak > 0 {
		line(w.name+"-peak", float64(s.memory)/1e6, w.peak, false)
	}
	if than := b.walls[w.than]; than > 0 {
		line(w.name+"-times", s.wall.Seconds()/than.Seconds(), w.times, false)
	}
}

func (c cost) String() string {
	return fmt.Sprintf("%.3f s, CPU %.3f s (kernel %.3f s), %d MiB", c.wall.Seconds(), c.cpu.Seconds(), c.system.Seconds(), c.memory>>20)
}

func line(name string, value, goal float64, least bool) {
	verdict := "short"
	if least && value >= goal || !least && value <= goal {
		verdict = "ok"
	}
	fmt.Printf("BENCH %s %.2f %.2f %s\n", name, value, goal, verdict)
}

// median returns the medians of wall time, CPU time and memory, each separately.
func median(costs []cost) cost {
	mid := func(value func(cost) int64) int64 {
		all := make([]int64, len(costs))
		for i, c := range costs {
			all[i] = value(c)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return cost{
		wall:   time.Duration(mid(func(c cost) int64 { return int64(c.wall) })),
		cpu:    time.Duration(mid(func(c cost) int64 { return int64(c.cpu) })),
		system: time.Duration(mid(func(c cost) int64 { return int64(c.system) })),
		memory: mid(func(c cost) int64 { return c.memory }),
		sent:   mid(func(c cost) int64 { return c.sent }),

		requests: mid(func(c cost) int64 { return c.requests }),
	}
}
