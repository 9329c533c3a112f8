package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	restartRounds  = 5
	restartRuns    = 160 // commands in each round
	restartThreads = 40
	restartTwice   = restartRuns / 4 // accepted commands after which the worker is killed again
)

// idleThread is the thread of commands that show that the worker is up.
const idleThread = "idle"

// workshop is a server and a worker, each a process, and a client.
type workshop struct {
	dir, sluice, url string
	call             *events.Conn
	client           *client.Client
	worker           *exec.Cmd
}

func (b *bench) workshop(ctx context.Context) (*workshop, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	w := &workshop{dir: dir}
	if w.sluice, err = b.program(ctx); err != nil {
		return nil, err
	}
	stop, url, err := b.child(ctx, modeServer, filepath.Join(dir, "nats"))
	if err != nil {
		return nil, err
	}
	b.atEnd(stop)
	w.url = url
	if _, w.call, w.client, err = b.connect(events.Options{URL: url, Token: token}); err != nil {
		return nil, err
	}
	b.atEnd(func() error { return w.end(unix.SIGTERM) })
	return w, w.start(ctx)
}

// start starts the worker, and returns before it accepts commands.
func (w *workshop) start(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, w.sluice, "worker", "--nats", w.url, "--data", filepath.Join(w.dir, "worker"), "--provider", "local", "--log-level", "error")
	cmd.Env = append(os.Environ(), "WORKER_ID=bench", "SLUICE_NATS_TOKEN="+token)
	cmd.Stderr = os.Stderr
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	w.worker = cmd
	return nil
}

// end ends the worker by a signal, and waits for its end.
func (w *workshop) end(s unix.Signal) error {
	if w.worker == nil {
		return nil
	}
	err := w.worker.Process.Signal(s)
	_ = w.worker.Wait() // it was signaled
	w.worker = nil
	return err
}

// queue queues commands of all threads, which have no worker now.
func (w *workshop) queue(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for i := range restartRuns {
		group.Go(func() error {
			x, err := w.client.ExecStream(ctx, client.Request{Thread: fmt.Sprint("t", i%restartThreads), Command: "true"})
			if err != nil {
				return err
			}
			defer x.Close()
			if !x.Queued() {
				return errors.New("the command found a worker, want it queued")
			}
			return nil
		})
	}
	return group.Wait()
}

// round kills the worker, queues commands and restarts it. It does so again when a part of them is accepted: the rest is then in the hands of
// the dead worker. It returns how long each command that was not accepted yet waited since the last restart.
func (w *workshop) round(ctx context.Context, feed *events.EventFeed) (waits []time.Duration, err error) {
	if err := sluiceTrue(w.client, idleThread)(ctx); err != nil { // the worker is up
		return nil, err
	}
	if err := w.end(unix.SIGKILL); err != nil {
		return nil, err
	}
	if err := w.queue(ctx); err != nil {
		return nil, err
	}
	restarted := time.Now()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	accepted, ended := 0, 0
	for ended < restartRuns {
		again := false
		if err := feed.Next(ctx, func(ev *schemas.Event) error {
			if ev.Thread == idleThread {
				return nil
			}
			switch ev.Type {
			case schemas.TypeProcessAccepted:
				if accepted++; ev.Time.After(restarted) {
					waits = append(waits, time.Since(restarted))
				}
				again = accepted == restartTwice
			case schemas.TypeProcessExited, schemas.TypeProcessLost: // lost: it was accepted, and the worker killed before its start
				ended++
			case schemas.TypeProcessRejected:
				return fmt.Errorf("process %s: %s", ev.Process, ev.Data)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		if again {
			if err := w.end(unix.SIGKILL); err != nil {
				return nil, err
			}
			restarted = time.Now()
			if err := w.start(ctx); err != nil {
				return nil, err
			}
		}
	}
	return waits, nil
}

// queueRestart is the p99, in seconds, of how long queued commands wait after a restart of their only worker, which was killed: from the
// start of its process until the event of the acceptance arrives at a follower.
func queueRestart(ctx context.Context, b *bench, w *workshop) (float64, error) {
	feed, err := w.call.Caller().FollowEvents(events.Filter{}, 0)
	if err != nil {
		return 0, err
	}
	defer feed.Close()
	var waits []time.Duration
	for range restartRounds {
		some, err := w.round(ctx, feed)
		if err != nil {
			return 0, err
		}
		waits = append(waits, some...)
	}
	slices.Sort(waits)
	at := func(percent int) time.Duration { return waits[(len(waits)-1)*percent/100].Round(time.Millisecond) }
	b.note("%d queued commands: median %s, p99 %s, longest %s after the restart", len(waits), at(50), at(99), at(100))
	return at(99).Seconds(), nil
}
