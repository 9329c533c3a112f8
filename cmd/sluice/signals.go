package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// untilSignal ends the context at the first SIGINT or SIGTERM. The second one has its default effect: it ends the program.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// untilHangup is untilSignal, and ends the context when the terminal closes too.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := untilSignal(ctx)
	end := atHangup(stop)
	return ctx, func() {
		stop()
		end()
	}
}

// catchHangups keeps a SIGHUP from ending this program, which it does by default. `nohup` has it ignored, and so it stays.
func catchHangups() {
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	}
}

// atHangup calls f when the terminal of this program has closed, until stop. Any other SIGHUP has no effect: who sends it to every
// sluice means those with a worker.
func atHangup(f func()) (stop func()) {
	if signal.Ignored(unix.SIGHUP) || !hasTerminal() {
		return func() {}
	}
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, unix.SIGHUP)
	go func() {
		defer close(ended)
		for range hangups {
			if !hasTerminal() {
				f()
			}
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(hangups)
		close(hangups)
		<-ended
	})
}

// hasTerminal reports whether this program has a controlling terminal, which has not closed.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// terminalInput is a standard input that is a terminal. When the terminal closes, Read blocks: the user did not end the input.
type terminalInput struct{ *os.File }

// Read reads what the user types.
func (t terminalInput) Read(p []byte) (int, error) {
	n, err := t.File.Read(p)
	if n == 0 && err != nil && (errors.Is(err, unix.EIO) || !term.IsTerminal(int(t.Fd()))) {
		select {} // until this program ends
	}
	return n, err
}

// standardInput is a standard input that may be closed, or open for writing alone, as nohup leaves it: it is empty then.
type standardInput struct{ *os.File }

// Read reads what is passed to this program.
func (s standardInput) Read(p []byte) (int, error) {
	n, err := s.File.Read(p)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrInvalid) || errors.Is(err, unix.EBADF) {
		err = io.EOF
	}
	return n, err
}

// target is a running process, as the signals of this program reach it.
type target interface {
	// Signal sends it a signal.
	Signal(ctx context.Context, name string)
	// Kill kills it. Killable reports whether it runs by now.
	Kill(ctx context.Context)
	Killable() bool
	// Detach is called when the terminal has closed. It reports whether this program may leave.
	Detach() bool
}

// interrupts forwards signals of this program to the process it runs. While a process runs, the first signal is forwarded, the second
// one kills the process, and the third one ends this program. Before and after, the first signal ends it. A terminal that closes never
// reaches the process.
type interrupts struct {
	ch         chan os.Signal
	cancel     context.CancelFunc
	ended      chan struct{}
	endHangups func()

	mu      sync.Mutex
	held    bool // a command is being sent, or runs
	target  target
	pending string // arrived after the command was sent and before its process was known
	hungUp  bool   // the same for a terminal that closed
	seen    int
	first   unix.Signal // that was kept for the process
	left    unix.Signal // the signal that ended this program
	sending sync.WaitGroup
}

// newInterrupts starts to handle signals. The context it returns ends when the user interrupts this program.
func newInterrupts(ctx context.Context) (*interrupts, context.Context) {
	i := &interrupts{ch: make(chan os.Signal, 4), ended: make(chan struct{})}
	ctx, i.cancel = context.WithCancel(ctx)
	signal.Notify(i.ch, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	go func() {
		defer close(i.ended)
		for s := range i.ch {
			if s, ok := s.(unix.Signal); ok {
				i.handle(ctx, s)
			}
		}
	}()
	i.endHangups = atHangup(i.hangUp)
	return i, ctx
}

// stop restores the default handling of signals.
func (i *interrupts) stop() {
	i.endHangups()
	signal.Stop(i.ch)
	close(i.ch)
	<-i.ended
	i.cancel()
}

func (i *interrupts) handle(ctx context.Context, s unix.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen++
	switch {
	case !i.held || i.seen > 2 || i.seen > 1 && i.target == nil:
		i.leave(s)
	case i.target == nil:
		i.first, i.pending = s, unix.SignalName(s)
	case i.seen == 1:
		i.first = s
		i.signal(ctx, unix.SignalName(s))
	case i.target.Killable():
		i.send(ctx, i.target.Kill)
	default:
		i.leave(s)
	}
}

// leave ends this program. mu is held.
func (i *interrupts) leave(s unix.Signal) {
	if i.left == 0 {
		i.left = s
	}
	i.cancel()
}

// hangUp leaves the process to itself: the terminal has closed.
func (i *interrupts) hangUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.held && i.target == nil:
		i.hungUp = true
	case !i.held || i.target.Detach():
		i.leave(unix.SIGHUP)
	}
}

// forwardTimeout bounds the wait for a worker to confirm a forwarded signal.
const forwardTimeout = 5 * time.Second

// send calls f without waiting: the next signal must be able to kill the process, or to end this program, meanwhile. mu is held.
func (i *interrupts) send(ctx context.Context, f func(context.Context)) {
	i.sending.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
		defer cancel()
		f(ctx)
	})
}

// signal forwards a signal. mu is held.
func (i *interrupts) signal(ctx context.Context, name string) {
	t := i.target
	i.send(ctx, func(ctx context.Context) { t.Signal(ctx, name) })
}

// hold keeps the first signal for the process of a command that is about to be sent.
func (i *interrupts) hold() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held = true
}

// forward sends signals to t until release.
func (i *interrupts) forward(ctx context.Context, t target) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.target = t
	if i.pending != "" {
		i.signal(ctx, i.pending)
	}
	if i.hungUp && t.Detach() {
		i.leave(unix.SIGHUP)
	}
}

// release ends the forwarding when the process has ended, and waits for signals that are being sent.
func (i *interrupts) release() {
	i.mu.Lock()
	i.held, i.target = false, nil
	i.mu.Unlock()
	i.sending.Wait()
}

// quit ends this program by its first signal.
func (i *interrupts) quit() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.leave(i.first)
}

// by is the signal by which the user ended this program; 0 for none.
func (i *interrupts) by() unix.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.left
}
