package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/events/embedded"
)

// modeServer and modeBare are first arguments by which this program runs as a part of its own measurement.
const (
	modeServer = "serve" // a NATS server on TCP, in a process of its own
	modeBare   = "bare"  // the least a NATS server with JetStream can be, for comparison
)

func main() {
	if len(os.Args) == 4 && (os.Args[1] == modeServer || os.Args[1] == modeBare) {
		if err := serve(os.Args[1], os.Args[2], embedded.Durability(os.Args[3])); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "", "measure only the figures whose `NAME` begins so")
	strict := flag.Bool("strict", false, "exit 1 when a figure is short of its goal")
	durability := flag.String("durability", string(embedded.DurabilityInterval), "measure with this `MODE` of the servers: interval or fsync")
	prof := flag.String("cpuprofile", "", "write a CPU profile to `FILE`")
	flag.Parse()
	if *prof != "" {
		f, err := os.Create(*prof)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		if err := pprof.StartCPUProfile(f); err == nil {
			defer pprof.StopCPUProfile()
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	short, err := run(ctx, *only, embedded.Durability(*durability))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if short > 0 && *strict {
		os.Exit(1)
	}
}

// figure is one thing to measure: the ratio of Sluice to its baseline, and what it has to be.
type figure struct {
	name    string
	goal    float64
	atMost  bool // the ratio must not be above the goal; else not below
	measure func(ctx context.Context, b *bench) (float64, error)
}

func figures() []figure {
	return append([]figure{
		{"exec.latency.inprocess", 2.0, true, latency(inProcess)},
		{"exec.latency.tcp", 2.8, true, latency(overTCP)},
		{"exec.rate.inprocess", 0.75, false, rate(inProcess)},
		{"exec.rate.tcp", 0.55, false, rate(overTCP)},
		{"log.live.inprocess", 0.15, false, live(inProcess)},
		{"log.live.tcp", 0.09, false, live(overTCP)},
		{"log.durable", 0.4, false, durable(inProcess)},
		{"up.ready", 3, true, upReady},
	}, sessionFigures()...)
}

// run measures, and says how many figures are short of their goal.
func run(ctx context.Context, only string, durability embedded.Durability) (short int, err error) {
	dir, err := os.MkdirTemp("", "slbench")
	if err != nil {
		return 0, fmt.Errorf("make a folder to measure in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{dir: dir, durability: durability}
	for _, f := range figures() {
		if !strings.HasPrefix(f.name, only) {
			continue
		}
		value, err := f.measure(ctx, b)
		if err != nil {
			return short, fmt.Errorf("%s: %w", f.name, err)
		}
		sign, ok := ">=", value >= f.goal
		if f.atMost {
			sign, ok = "<=", value <= f.goal
		}
		verdict := "ok"
		if !ok {
			verdict, short = "short", short+1
		}
		fmt.Printf("BENCH %s %.2f %s%g %s\n", f.name, value, sign, f.goal, verdict)
	}
	return short, nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}
