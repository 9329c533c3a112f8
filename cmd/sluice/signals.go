package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// untilSignal ends the context at the first SIGINT or SIGTERM. The second one has its default effect: it ends the program.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// interrupts forwards signals of this program to the process it runs. While a process runs, the first signal is forwarded and the
// second one ends this program. Before and after, the first signal ends it.
type interrupts struct {
	ch     chan os.Signal
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	held    bool // a command is being sent, or runs
	target  func(context.Context, string)
	pending string // arrived after the command was sent and before its process was known
	seen    bool
	first   unix.Signal // that was kept for the process
	left    unix.Signal // the signal that ended this program
	sending sync.WaitGroup
}

// newInterrupts starts to handle signals. The context it returns ends when the user interrupts this program.
func newInterrupts(ctx context.Context) (*interrupts, context.Context) {
	i := &interrupts{ch: make(chan os.Signal, 4), ended: make(chan struct{})}
	ctx, i.cancel = context.WithCancel(ctx)
	signal.Notify(i.ch, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	go func() {
		defer close(i.ended)
		for s := range i.ch {
			if s, ok := s.(unix.Signal); ok {
				i.handle(ctx, s)
			}
		}
	}()
	return i, ctx
}

// stop restores the default handling of signals.
func (i *interrupts) stop() {
	signal.Stop(i.ch)
	close(i.ch)
	<-i.ended
	i.cancel()
}

func (i *interrupts) handle(ctx context.Context, s unix.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case !i.held || i.seen:
		if i.left == 0 {
			i.left = s
		}
		i.cancel()
	case i.target == nil:
		i.seen, i.first, i.pending = true, s, unix.SignalName(s)
	default:
		i.seen, i.first = true, s
		i.send(ctx, unix.SignalName(s))
	}
}

// forwardTimeout bounds the wait for a worker to confirm a forwarded signal.
const forwardTimeout = 5 * time.Second

// send forwards a signal without waiting: a second signal must be able to end this program meanwhile. mu is held.
func (i *interrupts) send(ctx context.Context, name string) {
	target := i.target
	i.sending.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
		defer cancel()
		target(ctx, name)
	})
}

// hold keeps the first signal for the process of a command that is about to be sent.
func (i *interrupts) hold() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held = true
}

// forward sends signals to target until release.
func (i *interrupts) forward(ctx context.Context, target func(ctx context.Context, signal string)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.target = target
	if i.pending != "" {
		i.send(ctx, i.pending)
	}
}

// release ends the forwarding when the process has ended, and waits for signals that are being sent.
func (i *interrupts) release() {
	i.mu.Lock()
	i.held, i.target = false, nil
	i.mu.Unlock()
	i.sending.Wait()
}

// leave ends this program as a second signal does.
func (i *interrupts) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = i.first
	i.cancel()
}

// by is the signal by which the user ended this program; 0 for none.
func (i *interrupts) by() unix.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.left
}
