package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// interrupts turns signals to this program into signals to the process it runs. While there is one, the first is passed on and the
// second leaves at once; before and afterwards there is nothing to pass on, and the first leaves.
type interrupts struct {
	ch     chan os.Signal
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	held    bool // a command is on its way, or runs
	pass    func(context.Context, string)
	waiting string // came after the command was sent, and before its process was known
	seen    bool
	left    unix.Signal // the signal that made this program leave
	passing sync.WaitGroup
}

// newInterrupts begins to listen. The context it returns ends when the person leaves.
func newInterrupts(ctx context.Context) (*interrupts, context.Context) {
	i := &interrupts{ch: make(chan os.Signal, 4), ended: make(chan struct{})}
	ctx, i.cancel = context.WithCancel(ctx)
	signal.Notify(i.ch, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	go func() {
		defer close(i.ended)
		for s := range i.ch {
			if s, ok := s.(unix.Signal); ok {
				i.take(ctx, s)
			}
		}
	}()
	return i, ctx
}

// stop gives the signals back.
func (i *interrupts) stop() {
	signal.Stop(i.ch)
	close(i.ch)
	<-i.ended
	i.cancel()
}

func (i *interrupts) take(ctx context.Context, s unix.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case !i.held || i.seen:
		if i.left == 0 {
			i.left = s
		}
		i.cancel()
	case i.pass == nil:
		i.seen, i.waiting = true, unix.SignalName(s)
	default:
		i.seen = true
		i.send(ctx, unix.SignalName(s))
	}
}

// passPatience is how long a worker may take to answer that it has passed a signal on.
const passPatience = 5 * time.Second

// send passes a signal on without waiting for it: the second one must be able to leave meanwhile. mu is held.
func (i *interrupts) send(ctx context.Context, name string) {
	pass := i.pass
	i.passing.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, passPatience)
		defer cancel()
		pass(ctx, name)
	})
}

// hold keeps the first signal for the process of a command that is about to be sent.
func (i *interrupts) hold() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held = true
}

// forward passes signals on until release.
func (i *interrupts) forward(ctx context.Context, pass func(ctx context.Context, signal string)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pass = pass
	if i.waiting != "" {
		i.send(ctx, i.waiting)
	}
}

// release says that the process has ended, and waits for what is being passed on.
func (i *interrupts) release() {
	i.mu.Lock()
	i.held, i.pass = false, nil
	i.mu.Unlock()
	i.passing.Wait()
}

// by is the signal by which the person left; 0 while they have not.
func (i *interrupts) by() unix.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.left
}
