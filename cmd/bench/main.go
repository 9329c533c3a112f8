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

// modeServer and modeBare are the first arguments that make this program a server for its own measurements.
const (
	modeServer = "serve" // Sluice's NATS server on TCP
	modeBare   = "bare"  // a plain NATS server with JetStream, for comparison
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start() error {
	if len(os.Args) == 4 && (os.Args[1] == modeServer || os.Args[1] == modeBare) {
		return serve(os.Args[1], os.Args[2], embedded.Durability(os.Args[3]))
	}
	only := flag.String("only", "", "measure only the figures whose name starts with `NAME`")
	strict := flag.Bool("strict", false, "exit with 1 when a figure misses its goal")
	durability := flag.String("durability", string(embedded.DurabilityInterval), "durability `MODE` of the servers: interval or fsync")
	idle := flag.Int("jails", 1000, "number `N` of idle jails of jail.idle")
	prof := flag.String("cpuprofile", "", "write a CPU profile to `FILE`")
	flag.Parse()
	if *prof != "" {
		f, err := os.Create(*prof)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err == nil {
			defer pprof.StopCPUProfile()
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	short, err := measure(ctx, *only, &bench{durability: embedded.Durability(*durability), idle: *idle})
	if err == nil && short > 0 && *strict {
		os.Exit(1)
	}
	return err
}
