package events

import (
	"sync/atomic"

	"github.com/sluice-dev/sluice/schemas"
)

// gate bounds what a subscription of a worker handles at a time.
type gate struct {
	worker string
	full   *schemas.Error // why one more is refused
	places chan struct{}
	closed atomic.Bool
}

func newGate(worker string, most int, full *schemas.Error) *gate {
	return &gate{worker: worker, full: full, places: make(chan struct{}, most)}
}

// enter runs f in the background, or returns why it does not: full, or that the worker is shutting down, once the gate is closed.
func (g *gate) enter(f func()) (refused *schemas.Error) {
	select {
	case g.places <- struct{}{}:
	default:
		if g.closed.Load() {
			return schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", g.worker).With(schemas.DetailDeclined, "shutdown")
		}
		return g.full
	}
	go func() {
		defer func() { <-g.places }()
		f()
	}()
	return nil
}

// close waits for what has entered, and admits no more.
func (g *gate) close() {
	g.closed.Store(true)
	for range cap(g.places) {
		g.places <- struct{}{}
	}
}
