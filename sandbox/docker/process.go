package docker

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Process is one run in a container. What its supervisor cannot know is added to the exit record: that the memory limit ended it.
type Process struct {
	*link.Process
	box    *Sandbox
	before int64       // ended by the limit when it began
	asked  atomic.Bool // somebody asked for its end

	once sync.Once
	exit sandbox.Exit
}

var _ sandbox.Process = (*Process)(nil)

// Signal sends a signal to the process's group; see sandbox.Process.
func (p *Process) Signal(sig sandbox.Signal) error {
	if sig == sandbox.Signal(syscall.SIGKILL) {
		p.asked.Store(true)
	}
	return p.Process.Signal(sig)
}

// Kill ends the whole tree; see sandbox.Process.
func (p *Process) Kill(grace time.Duration) error {
	p.asked.Store(true)
	return p.Process.Kill(grace)
}

// killedCode is how a shell reports that what it ran was killed.
const killedCode = schemas.ExitSignalBase + int(syscall.SIGKILL)

// Wait blocks for the exit record; see sandbox.Process. A process that SIGKILL ended, or a shell whose command it ended, while the
// container's memory limit was ending something, has the reason schemas.ReasonOOM, unless its end had been asked for. So has
// one that was lost because the limit ended the supervisor.
func (p *Process) Wait(ctx context.Context) (sandbox.Exit, error) {
	exit, err := p.Process.Wait(ctx)
	if err != nil {
		return exit, err
	}
	if exit.Reason == schemas.ReasonLost {
		select {
		case <-p.box.examined:
		case <-ctx.Done():
			return sandbox.Exit{}, ctx.Err()
		}
	}
	p.once.Do(func() {
		if p.outOfMemory(exit) {
			exit.Reason, exit.Code = schemas.ReasonOOM, killedCode
		}
		p.exit = exit
	})
	return p.exit, nil
}

func (p *Process) outOfMemory(exit sandbox.Exit) bool {
	switch {
	case exit.Reason == schemas.ReasonLost:
		return p.box.oom.Load()
	case exit.Code != killedCode || p.asked.Load() || p.box.ending.Load():
		return false
	case exit.Reason == schemas.ReasonKilled || exit.Reason == schemas.ReasonExited:
		return p.box.tally.claim(p.before)
	default:
		return false
	}
}
