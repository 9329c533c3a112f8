package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// daemon is a server or a worker: a process that is started again whenever it ends.
type daemon struct {
	name string
	args []string
	env  []string
	log  string // the file of its standard error

	busy     sync.Mutex // held by the fault that has it
	starting sync.Mutex // held by bringUp

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // of cmd
	closed  bool
	wanted  bool // it was killed or stopped by a fault
	crashes []string
}

// start starts the process and waits until it is up.
func (d *daemon) start(ctx context.Context) error {
	out, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(d.args[0], d.args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env, write, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl+C is for this program
	d.mu.Lock()
	if d.closed {
		err = errClosed
	} else {
		err = cmd.Start()
	}
	_ = write.Close() // the process has its own
	if err != nil {
		d.mu.Unlock()
		_ = read.Close()
		return err
	}
	ended := make(chan struct{})
	d.cmd, d.ended, d.wanted = cmd, ended, false
	d.mu.Unlock()
	up := make(chan struct{})
	go func() {
		defer read.Close()
		lines := bufio.NewScanner(read)
		if lines.Scan() {
			close(up)
		}
		for lines.Scan() {
			continue // nothing more is expected
		}
	}()
	go d.watch(ctx, cmd, ended, up)
	select {
	case <-up:
		return nil
	case <-ended:
		return fmt.Errorf("%s ended before it was up: %s", d.name, cmd.ProcessState)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bringUp starts the process until it is up, unless it runs.
func (d *daemon) bringUp(ctx context.Context) error {
	d.starting.Lock()
	defer d.starting.Unlock()
	for d.pid() == 0 {
		err := d.start(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, errClosed) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

// errClosed reports that a daemon was closed.
var errClosed = errors.New("the cell is closed")

// watch waits for the end of a process, and starts it again when no fault ended it. While it is not up, bringUp does.
func (d *daemon) watch(ctx context.Context, cmd *exec.Cmd, ended, up chan struct{}) {
	_ = cmd.Wait() // its state says how it ended
	d.mu.Lock()
	crashed := !d.wanted && !d.closed
	if crashed {
		d.crashes = append(d.crashes, fmt.Sprintf("%s at %s: %s", d.name, time.Now().UTC().Format("15:04:05.000"), cmd.ProcessState))
		fmt.Fprintln(os.Stderr, "  ended by itself:", d.crashes[len(d.crashes)-1])
	}
	d.mu.Unlock()
	close(ended)
	select {
	case <-up:
		if crashed {
			_ = d.bringUp(ctx) // else the cell is closed
		}
	default:
	}
}

// pid is that of the process, 0 when none runs.
func (d *daemon) pid() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil || d.cmd.Process == nil {
		return 0
	}
	select {
	case <-d.ended:
		return 0
	default:
		return d.cmd.Process.Pid
	}
}

// signal sends a signal, and ignores a process that has ended.
func (d *daemon) signal(s syscall.Signal) {
	if pid := d.pid(); pid > 0 {
		_ = syscall.Kill(pid, s)
	}
}

// end ends the process by a signal, waits for that, and does not start it again.
func (d *daemon) end(s syscall.Signal, patience time.Duration) {
	d.mu.Lock()
	d.wanted = true
	ended := d.ended
	d.mu.Unlock()
	d.signal(s)
	if ended == nil {
		return
	}
	select {
	case <-ended:
	case <-time.After(patience):
		d.signal(syscall.SIGCONT)
		d.signal(syscall.SIGKILL)
		<-ended
	}
}

// close ends the process for good.
func (d *daemon) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.signal(syscall.SIGCONT)
	d.end(syscall.SIGTERM, 10*time.Second)
}
