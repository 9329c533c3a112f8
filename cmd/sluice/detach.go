package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// detached is what exec --detach --json prints.
type detached struct {
	Process string `json:"process"`
	Thread  string `json:"thread"`
	// Queued says that no worker has accepted the command yet.
	Queued bool `json:"queued"`
}

// detach sends a command and prints its process id. The command continues on the server's worker, so it needs one that outlives this
// program.
func (g *globals) detach(ctx context.Context, req client.Request, own hostOptions, asJSON bool) error {
	ctx, stop := untilHangup(ctx)
	defer stop()
	c, err := g.connect(ctx, hostOptions{})
	if err != nil {
		return err
	}
	if c.temporary() {
		err = schemas.Errorf(schemas.CodeUnavailable, "a process in the background needs a server that stays: start `sluice up`, or name one with --nats")
	} else if err = c.checkLimits(own); err == nil {
		err = g.sendDetached(ctx, c.client, req, asJSON)
	}
	return errors.Join(err, c.close(ctx))
}

func (g *globals) sendDetached(ctx context.Context, c *client.Client, req client.Request, asJSON bool) error {
	var err error
	if req.StdinFrom != "" {
		if req.StdinFrom, err = named(ctx, c, req.Thread, req.StdinFrom); err != nil {
			return err
		}
	}
	p, err := c.StartProcess(ctx, req)
	if err != nil {
		return err
	}
	if asJSON {
		return g.printJSON(detached{p.ID(), p.Thread(), p.Queued()})
	}
	fmt.Fprintln(g.Stdout, p.ID())
	if req.Key != "" && !p.Queued() { // it may be one that was started before
		if info, err := p.Info(ctx); err == nil && info.Status.Ended() {
			g.notice(fmt.Sprintf("process %s has ended: `sluice logs %[1]s` shows its output", p.ID()))
			return nil
		}
	}
	state := "runs"
	if p.Queued() {
		state = "is queued and starts when a worker takes it"
	}
	g.notice(fmt.Sprintf("process %s %s: `sluice logs -f %[1]s` follows it, `sluice process cancel --thread %[3]s %[1]s` ends it", p.ID(), state, p.Thread()))
	return nil
}
