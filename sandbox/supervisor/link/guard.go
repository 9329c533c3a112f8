package link

import (
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

// guard keeps a sandbox's workspace within its limits: it looks at it while something runs, and after each process.
type guard struct {
	*workspace.Guard
	limits sandbox.Limits

	mu      sync.Mutex
	running map[*Process]struct{}
	looking bool
	looked  chan struct{} // closed when the last goroutine that looks has ended; nil before the first
	over    bool          // nothing is looked after any more
}

func newGuard(dir func() string, limits sandbox.Limits) *guard {
	return &guard{Guard: workspace.NewGuard(dir, limits), limits: limits.WorkspaceDefaults(), running: make(map[*Process]struct{})}
}

// mind looks after a process until it has ended. It must come before anybody waits for the process.
func (g *guard) mind(p *Process) {
	p.guard = g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[p] = struct{}{}
	if g.looking || g.over {
		return
	}
	looked := make(chan struct{})
	g.looking, g.looked = true, looked
	go func() {
		defer close(looked)
		g.look()
	}()
}

// wait ends the looking and waits for it. Every process has ended by then, or is about to: a start may still be on its way here.
func (g *guard) wait() {
	g.mu.Lock()
	g.over = true
	looked := g.looked
	g.mu.Unlock()
	if looked != nil {
		<-looked
	}
}

// look lasts as long as something runs.
func (g *guard) look() {
	timer := time.NewTimer(workspace.Every)
	defer timer.Stop()
	for {
		p := g.one()
		if p == nil {
			return
		}
		select {
		case <-p.ended:
			continue
		case <-timer.C:
			timer.Reset(workspace.Every)
		}
		if err := g.Look(); err != nil {
			g.end(err)
		}
	}
}

// one is a process that runs; with nil, looking is over.
func (g *guard) one() *Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.running {
		if !p.isEnded() {
			return p
		}
		delete(g.running, p)
	}
	g.looking = false
	return nil
}

// end kills everything that runs, and notes why.
func (g *guard) end(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.running {
		p.mu.Lock()
		p.why = why
		p.mu.Unlock()
		_ = p.Kill(0) // it fails where the sandbox is gone, and with it the process
	}
}

// fileCode is how a shell reports that what it ran, or what it ran ran, was ended for writing too large a file.
const fileCode = schemas.ExitSignalBase + int(syscall.SIGXFSZ)

// verdict is what the end of a process has to do with the limits; nil for nothing.
func (g *guard) verdict(p *Process) error {
	err := g.Ended()
	p.mu.Lock()
	why := p.why
	p.mu.Unlock()
	switch {
	case err != nil:
		return err
	case why != nil && p.exit.Reason == schemas.ReasonKilled:
		return why
	case p.exit.Code == fileCode:
		return schemas.Errorf(schemas.CodeLimitExceeded, "a file would have grown past %d bytes: a larger limit is set where the worker is started, by --file-bytes",
			g.limits.FileBytes)
	}
	return nil
}
