package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/history"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// cell is the servers and workers, and what was done to them.
type cell struct {
	life    context.Context // ends at Ctrl+C
	lease   time.Duration
	dir     string
	urls    string
	servers []*daemon
	workers []*daemon
	nc      *nats.Conn
	js      jetstream.JetStream
	begun   time.Time
	limits  *limits
	stop    func() // ends the reaper

	mu     sync.Mutex
	counts map[string]int
	faults []history.Fault
	away   []history.Span // of workers
	broken []history.Span // of NATS
}

// startCell starts servers and workers, and returns when all are up.
func startCell(ctx context.Context, c *config, dir string) (_ *cell, err error) {
	// Supervisors outlive their workers: as orphans they become children of this program, which can then end them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	l := &cell{life: ctx, lease: c.lease, dir: dir, begun: time.Now(), counts: make(map[string]int)}
	l.stop = every(200*time.Millisecond, func() { reap(l.owns) })
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := l.startServers(ctx, c); err != nil {
		return nil, err
	}
	l.nc, err = nats.Connect(l.urls, nats.Token(token), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	if l.js, err = jetstream.New(l.nc); err != nil {
		return nil, err
	}
	for { // a cluster elects its leader first
		wait, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := l.js.AccountInfo(wait)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if err := l.startWorkers(ctx, c); err != nil {
		return nil, err
	}
	l.limits, err = newLimits(ctx, l.js)
	return l, err
}

func (l *cell) startServers(ctx context.Context, c *config) error {
	var ports []int
	for range 2 * c.servers {
		port, _, err := testkit.ReservePort(ctx) // until this program ends: servers are started again
		if err != nil {
			return err
		}
		ports = append(ports, port)
	}
	var urls []string
	for i := range c.servers {
		name := fmt.Sprint("s", i+1)
		conf := serverConfig{Name: name, Dir: filepath.Join(l.dir, name), Port: ports[i]}
		if c.servers > 1 {
			conf.Cluster, conf.Routes = ports[c.servers+i], ports[c.servers:]
		}
		arg, err := json.Marshal(conf)
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		l.servers = append(l.servers, &daemon{name: name, args: []string{self, modeServer, string(arg)}, log: filepath.Join(l.dir, name+".err")})
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	l.urls = strings.Join(urls, ",")
	return startAll(ctx, l.servers)
}

func (l *cell) startWorkers(ctx context.Context, c *config) error {
	for i := range c.workers {
		name := fmt.Sprint("w", i+1)
		l.workers = append(l.workers, &daemon{
			name: name, log: filepath.Join(l.dir, name+".log"),
			args: []string{
				c.program, "worker", "--nats", l.urls, "--data", filepath.Join(l.dir, name), "--provider", c.provider, "--lease", c.lease.String(),
				"--replicas", fmt.Sprint(c.servers), "--grace", "1s", "--max-processes", "32", "--log-format", "json", "--log-level", "debug",
			},
			env: []string{"WORKER_ID=" + name, "SLUICE_NATS_TOKEN=" + token, "PATH=" + os.Getenv("PATH"), "HOME=" + l.dir},
		})
	}
	return startAll(ctx, l.workers)
}

func startAll(ctx context.Context, all []*daemon) error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, d := range all {
		group.Go(func() { errs[i] = d.bringUp(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// every calls f again and again until stop.
func every(interval time.Duration, f func()) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(interval):
				f()
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// owns reports whether a daemon waits for this child.
func (l *cell) owns(pid int) bool {
	for _, d := range append(append([]*daemon(nil), l.servers...), l.workers...) {
		d.mu.Lock()
		owns := d.cmd != nil && d.cmd.Process != nil && d.cmd.Process.Pid == pid
		d.mu.Unlock()
		if owns {
			return true
		}
	}
	return false
}

// close ends everything: the workers first, because they end their sandboxes.
func (l *cell) close() error {
	for _, all := range [][]*daemon{l.workers, l.servers} {
		var group sync.WaitGroup
		for _, d := range all {
			group.Go(d.close)
		}
		group.Wait()
	}
	if l.nc != nil {
		l.nc.Close()
	}
	l.stop()
	if left := killAll(10 * time.Second); left > 0 {
		return fmt.Errorf("%d processes could not be killed", left)
	}
	return nil
}

// heal ends every fault: all processes run, and the streams have their limits again.
func (l *cell) heal(ctx context.Context) error {
	for _, d := range append(append([]*daemon(nil), l.servers...), l.workers...) {
		d.signal(unix.SIGCONT)
		if d.pid() == 0 {
			if err := d.bringUp(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// quietTimeout is how long processes may take to end when all clients have their answers, or wait no longer.
const quietTimeout = 20 * time.Second

// awaitQuiet waits until CMD is empty and every process on record has ended. After quietTimeout the checker reports the rest.
func (l *cell) awaitQuiet(ctx context.Context) error {
	for end := time.Now().Add(quietTimeout); time.Now().Before(end); {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		cmd, err := l.js.Stream(wait, streamName("CMD"))
		cancel()
		if err == nil && cmd.CachedInfo().State.Msgs == 0 {
			h, err := history.Read(ctx, l.js, schemas.DefaultCell, schemas.DefaultTenant)
			if err == nil && !h.Busy() {
				return nil
			}
		}
		if !pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
	return ctx.Err()
}

func streamName(s string) string { return "sluice-" + schemas.DefaultCell + "-" + s }

// runsFile is the file in a workspace to which each command writes its process first.
const runsFile = "runs"

// runs counts how often each process began.
func (l *cell) runs() (map[string]int, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "*", "workspaces", "*", "*", runsFile))
	if err != nil {
		return nil, err
	}
	runs := make(map[string]int)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			runs[lines.Text()]++
		}
		err = errors.Join(lines.Err(), f.Close())
		if err != nil {
			return nil, err
		}
	}
	return runs, nil
}

func (l *cell) note(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[kind]++
}

// lossy notes a fault that may cost a worker's processes.
func (l *cell) lossy(f history.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, f)
}

func (l *cell) noteAway(s history.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = append(l.away, s)
}

func (l *cell) noteBroken(s history.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = append(l.broken, s)
}

// addFaults adds the faults so far to a history.
func (l *cell) addFaults(h *history.History) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Faults, h.Away, h.Broken = slices.Clone(l.faults), slices.Clone(l.away), slices.Clone(l.broken)
}

// faultCounts are the faults by kind, and how often a process ended by itself.
func (l *cell) faultCounts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int)
	for k, n := range l.counts {
		all[k] = n
	}
	for _, d := range append(append([]*daemon(nil), l.servers...), l.workers...) {
		d.mu.Lock()
		if n := len(d.crashes); n > 0 {
			all["ended-by-itself-"+d.name] = n
		}
		d.mu.Unlock()
	}
	return all
}
