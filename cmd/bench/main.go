package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"

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
	idle := flag.Int("jails", 1000, "how many idle jails jail.idle makes: `COUNT`")
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
	short, err := measure(ctx, *only, &bench{durability: embedded.Durability(*durability), idle: *idle})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if short > 0 && *strict {
		os.Exit(1)
	}
}
