package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/history"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/schemas"
)

// config is what the flags say.
type config struct {
	seed              uint64
	duration          time.Duration // of the faults
	settle            time.Duration // the longest wait for quiet afterwards
	lease             time.Duration // the workers' lease TTL
	servers, workers  int
	clients           int
	kinds             []string
	provider, program string
	keep              bool
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == modeServer {
		exitWith(serve(os.Args[2]))
	}
	var c config
	kinds := flag.String("faults", strings.Join(faultKinds(), ","), "`KINDS` of faults, comma-separated; a - before a kind leaves it out")
	flag.Uint64Var(&c.seed, "seed", 1, "`SEED` of the schedule")
	flag.DurationVar(&c.duration, "duration", time.Minute, "`TIME` during which there are faults")
	flag.DurationVar(&c.settle, "settle", 90*time.Second, "longest `TIME` until everything has ended after the last fault")
	flag.DurationVar(&c.lease, "lease", 4*time.Second, "`TTL` of the workers' leases; short, so that many end within a run")
	flag.IntVar(&c.servers, "servers", 1, "number `N` of NATS servers: 1, or 3 as a cluster")
	flag.IntVar(&c.workers, "workers", 3, "number `N` of workers")
	flag.IntVar(&c.clients, "clients", 16, "number `N` of clients")
	flag.StringVar(&c.provider, "provider", "", "`PROVIDER` of the workers; default: jail where it runs, else local")
	flag.StringVar(&c.program, "sluice", "", "`PROGRAM` to test; default: built from the sources")
	flag.BoolVar(&c.keep, "keep", false, "keep the folder with the logs of servers and workers")
	flag.Parse()
	var err error
	if c.kinds, err = chooseKinds(*kinds, c.servers); err == nil {
		err = run(&c)
	}
	exitWith(err)
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// errViolations reports that the checker found something, which has been printed.
var errViolations = errors.New("promises are broken")

func run(c *config) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return err
	}
	defer func() {
		if c.keep {
			fmt.Println("kept:", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if c.provider == "" {
		c.provider = schemas.ProviderJail
		if _, err := jail.Check(filepath.Join(dir, "check")); err != nil {
			c.provider = schemas.ProviderLocal
		}
	}
	if c.program == "" {
		c.program = filepath.Join(dir, "sluice")
		build := exec.CommandContext(ctx, "go", "build", "-o", c.program, "./cmd/sluice")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build sluice: %w: %s", err, out)
		}
	}
	cell, err := startCell(ctx, c, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cell.close()) }()
	j := &journal{}
	h, err := storm(ctx, c, cell, j)
	if err != nil {
		return err
	}
	return report(c, cell, h)
}

// storm runs the clients and the faults, lifts them, waits for quiet and returns the history.
func storm(ctx context.Context, c *config, cell *cell, j *journal) (*history.History, error) {
	clients, err := newClients(c, cell, j)
	if err != nil {
		return nil, err
	}
	defer clients.close()
	sending, stopSending := context.WithTimeout(ctx, c.duration)
	defer stopSending()
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	clients.sending, clients.waiting = sending, waiting
	feeds := clients.followFeeds(ctx)
	defer feeds.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		clients.run()
	}()
	watching, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { cell.watchLeaders(watching) })
	defer watch.Wait()
	defer stopWatching()
	cell.attack(sending, plan(c), clients)
	settling, stopSettling := context.WithTimeout(ctx, c.settle)
	defer stopSettling()
	if err := cell.heal(settling); ctx.Err() != nil {
		return nil, ctx.Err()
	} else if err != nil {
		return nil, fmt.Errorf("the cell does not get up again: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%6.1fs faults are lifted\n", time.Since(cell.begun).Seconds())
	select {
	case <-done:
	case <-settling.Done():
		stopWaiting()
		<-done
	}
	if err := cell.awaitQuiet(ctx); err != nil {
		return nil, err
	}
	h, err := history.Read(ctx, cell.js, schemas.DefaultCell, schemas.DefaultTenant)
	if err != nil {
		return nil, err
	}
	h.Ops, h.LeaseTTL = j.taken(), c.lease
	cell.addFaults(h)
	feeds.finish(ctx, h)
	h.Runs, err = cell.runs()
	return h, err
}

// report prints the counts and the violations.
func report(c *config, cell *cell, h *history.History) error {
	fmt.Printf("chaos: seed %d, %s, %d servers, %d workers, provider %s\n", c.seed, c.duration, c.servers, c.workers, c.provider)
	answers := make(map[string]int)
	for _, o := range h.Ops {
		switch {
		case o.Answered.IsZero():
			answers["none"]++
		case o.Result != nil && o.Result.Reason == schemas.ReasonRejected && o.Result.Error != nil:
			answers["rejected: "+string(o.Result.Error.Code)]++
		case o.Result != nil:
			answers[string(o.Result.Reason)]++
		default:
			answers[string(o.Code)]++
		}
	}
	fmt.Printf("operations: %d; answers: %s\n", len(h.Ops), counts(answers))
	fmt.Printf("records: %d, chunks: %d, messages: %d, dead letters: %d, runs: %d\n",
		len(h.Records), len(h.Chunks), len(h.Messages), len(h.Dead), len(h.Runs))
	received, restarts := 0, 0
	for _, f := range h.Feeds {
		received, restarts = received+len(f.Seqs), restarts+f.Restarts
	}
	fmt.Printf("followers of EVT and MSG: %d; received: %d, started again after an error: %d\n", len(h.Feeds), received, restarts)
	fmt.Printf("faults: %s\n", counts(cell.faultCounts()))
	reportWaits(h.QueueWaits())
	found := history.Check(h)
	byKind := make(map[string]int)
	for _, v := range found {
		byKind[string(v.Kind)]++
	}
	fmt.Printf("violations: %d: %s\n", len(found), counts(byKind))
	const shown = 20
	printed := make(map[history.Kind]int)
	for _, v := range found {
		if printed[v.Kind]++; printed[v.Kind] <= shown {
			fmt.Println("  ", v)
		}
	}
	if len(found) > 0 {
		return errViolations
	}
	return nil
}

// reportWaits prints how long queued commands waited for their acceptance.
func reportWaits(w history.Waits) {
	for _, row := range []struct {
		what  string
		waits []history.Wait
	}{
		{"all workers and servers were up", w.Calm},
		{"a worker came back; since its start", w.Restarted},
		{"a worker stayed away, until another took over", w.Failover},
		{"a server was away, or a leader elected", w.Broken},
		{"the same, since all was whole", w.Mended},
	} {
		longest := quantile(row.waits, 100)
		fmt.Printf("queued commands: %5d; median %8s, p99 %8s, longest %8s %s; %s\n",
			len(row.waits), quantile(row.waits, 50).Time, quantile(row.waits, 99).Time, longest.Time, longest.Process, row.what)
	}
}

// quantile is the value that a percentage of sorted values does not exceed.
func quantile(sorted []history.Wait, percent int) history.Wait {
	if len(sorted) == 0 {
		return history.Wait{}
	}
	w := sorted[(len(sorted)-1)*percent/100]
	w.Time = w.Time.Round(time.Millisecond)
	return w
}

// counts is a map as text, in order.
func counts(m map[string]int) string {
	sum := 0
	parts := make([]string, 0, len(m))
	for name, n := range m {
		sum += n
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d (%s)", sum, strings.Join(parts, ", "))
}
