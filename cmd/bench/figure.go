package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

type figure struct {
	name    string
	goal    float64
	atMost  bool // the goal is an upper bound; otherwise a lower one
	measure measurement
}

type measurement func(ctx context.Context, b *bench) (float64, error)

// with measures what open makes.
func with[T any](open func(*bench, context.Context) (T, error), measure func(context.Context, *bench, T) (float64, error)) measurement {
	return func(ctx context.Context, b *bench) (float64, error) {
		opened, err := open(b, ctx)
		if err != nil {
			return 0, err
		}
		return measure(ctx, b, opened)
	}
}

// figures is the table of all figures. The goals of session.create, in milliseconds, are the product's promise to that many users at
// once on two cores, and that of queue.restart.p99, in seconds, is its promise to queued commands. jail.idle,
// http.uploads.rss and sse.1000 are in megabytes, session.parked_bytes in bytes; all others are ratios to a baseline.
func figures() []figure {
	return []figure{
		{"exec.latency.inprocess", 2.0, true, latency(inProcess)},
		{"exec.latency.tcp", 2.8, true, latency(overTCP)},
		{"exec.rate.inprocess", 0.75, false, rate(inProcess)},
		{"exec.rate.tcp", 0.55, false, rate(overTCP)},
		{"first.byte", 2.5, true, with(rigAt(inProcess), firstByte)},
		{"sdk.local", 2.5, true, latency(inProcess)},
		{"sdk.remote", 2.5, true, latency(overTCP)},
		{"sdk.local.remote", 1, true, localOverRemote},
		{"queue.rate", 0.7, false, with((*bench).stage, queueRate)},
		{"queue.restart.p99", 2, true, with((*bench).workshop, queueRestart)},
		{"pty.echo", 3, true, with(rigAt(overTCP), keyEcho)},
		{"forward", 0.3, false, with(rigAt(overTCP), forwardPort)},
		{"log.live.inprocess", 0.15, false, live(inProcess)},
		{"log.live.tcp", 0.09, false, live(overTCP)},
		{"follow.100", 1.05, true, with(rigAt(overTCP), followMany)},
		{"log.durable", 0.4, false, durable(inProcess)},
		{"process.list", 1.5, true, processList},
		{"http.exec", 1.5, true, with((*bench).webRig, httpExec)},
		{"http.rate", 0.7, false, with((*bench).webRig, httpRate)},
		{"http.uploads.rss", 64, true, with((*bench).gatewayRig, uploadMemory)},
		{"sse.1000", 150, true, with((*bench).gatewayRig, sseMemory)},
		{"file.rw", 0.25, false, fileContent(inProcess)},
		{"hook.overhead", 1.1, true, hookOverhead(inProcess)},
		{"up.ready", 3, true, upReady},
		{"jail.cold", 30, false, with((*bench).jails, jailCold)},
		{"jail.bwrap", 1, false, with((*bench).jails, jailBwrap)},
		{"jail.exec", 1.6, true, with((*bench).warmJail, jailExec)},
		{"jail.idle", 2, true, with((*bench).jails, jailIdle)},
		{"jail.output", 0.7, false, with((*bench).warmJail, jailOutput)},
		{"docker.exec", 1.6, true, with((*bench).docker, dockerExec)},
		{"docker.vs.exec.p50", 30, false, with((*bench).docker, dockerOverExec)},
		{"docker.vs.exec.rate", 60, false, with((*bench).docker, dockerRate)},
		{"pool.claim", 50, false, with((*bench).docker, poolClaim)},
		{"session.create.10", 100, true, sessionCreate(10)},
		{"session.create.50", 100, true, sessionCreate(50)},
		{"session.create.200", 150, true, sessionCreate(200)},
		{"session.create.500", 200, true, sessionCreate(500)},
		{"session.reuse", 2, true, with(localTestbed(0), sessionReuse)},
		{"session.parked_bytes", 50 << 10, true, with(localTestbed(time.Millisecond), sessionParked)},
		{"session.create.docker", 20, false, with((*bench).docker, sessionDocker)},
	}
}

// missingError skips a figure: this machine lacks what it needs.
type missingError struct{ err error }

func (e *missingError) Error() string { return e.err.Error() }

func (e *missingError) Unwrap() error { return e.err }

// missing makes err skip the figure.
func missing(err error) error { return &missingError{err} }

// skip makes err skip the figure if it is of this kind.
func skip(err, kind error) error {
	if errors.Is(err, kind) {
		return missing(err)
	}
	return err
}

// measure prints the figures whose name starts with only, and returns how many miss their goal.
func measure(ctx context.Context, only string, b *bench) (short int, err error) {
	b.dir, err = os.MkdirTemp("", "slbench")
	if err != nil {
		return 0, fmt.Errorf("create a folder for the measurements: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	for _, f := range figures() {
		if !strings.HasPrefix(f.name, only) {
			continue
		}
		sign := ">="
		if f.atMost {
			sign = "<="
		}
		value, err := f.measure(ctx, b)
		err = errors.Join(err, b.closeAll())
		if reason, ok := errors.AsType[*missingError](err); ok {
			fmt.Printf("BENCH %s - %s%g skipped: %v\n", f.name, sign, f.goal, reason)
			continue
		}
		if err != nil {
			return short, fmt.Errorf("%s: %w", f.name, err)
		}
		verdict := "ok"
		if f.atMost && value > f.goal || !f.atMost && value < f.goal {
			verdict, short = "short", short+1
		}
		fmt.Printf("BENCH %s %.2f %s%g %s\n", f.name, value, sign, f.goal, verdict)
	}
	return short, nil
}
