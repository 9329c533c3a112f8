package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

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
		{"hook.overhead", 1.1, true, hookOverhead(inProcess)},
		{"up.ready", 3, true, upReady},
		{"jail.cold", 30, false, jailCold},
		{"jail.bwrap", 1, false, jailBwrap},
		{"jail.exec", 1.6, true, jailExec},
		{"jail.idle", 2, true, jailIdle},
		{"jail.output", 0.7, false, jailOutput},
		{"docker.exec", 1.6, true, withDocker(dockerExec)},
		{"docker.vs.exec.p50", 30, false, withDocker(dockerOverExec)},
		{"docker.vs.exec.rate", 60, false, withDocker(dockerRate)},
		{"pool.claim", 50, false, withDocker(poolClaim)},
	}, sessionFigures()...)
}

// missingError says what a figure needs that this machine does not have.
type missingError struct{ err error }

func (e *missingError) Error() string { return e.err.Error() }

func (e *missingError) Unwrap() error { return e.err }

// missing makes a figure one that is skipped, and err why.
func missing(err error) error { return &missingError{err} }

// skip is missing for one kind of errors.
func skip(err, kind error) error {
	if errors.Is(err, kind) {
		return missing(err)
	}
	return err
}

// measure prints each figure, and says how many are short of their goal.
func measure(ctx context.Context, only string, b *bench) (short int, err error) {
	b.dir, err = os.MkdirTemp("", "slbench")
	if err != nil {
		return 0, fmt.Errorf("make a folder to measure in: %w", err)
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
		if lack, ok := errors.AsType[*missingError](err); ok {
			fmt.Printf("BENCH %s - %s%g skipped: %v\n", f.name, sign, f.goal, lack)
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
