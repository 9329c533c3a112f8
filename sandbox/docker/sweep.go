package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
)

// Run removes what no live session owns, at once and then every Config.SweepEvery, until ctx ends. Its error is ctx's alone:
// an engine that does not answer now may do so later.
func (p *Provider) Run(ctx context.Context) error {
	tick := time.NewTicker(p.config.SweepEvery)
	defer tick.Stop()
	for {
		if _, err := p.Sweep(ctx); err != nil && ctx.Err() == nil {
			p.config.Warn(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Sweep removes the containers of this cell and worker that neither this Provider nor Config.Live knows, nor a file tells of for
// Attach, and their sockets, and says how many containers there were. Errors: unavailable, and Live's.
func (p *Provider) Sweep(ctx context.Context) (int, error) {
	live, err := p.config.Live(ctx)
	if err != nil {
		return 0, err
	}
	if err := p.agree(ctx); err != nil {
		return 0, err
	}
	found, err := p.client.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", labelCell+"="+p.config.Cell), filters.Arg("label", labelWorker+"="+p.config.Worker),
	)})
	if err != nil {
		return 0, engineError(p.client, "list containers", err)
	}
	removed, there := 0, make(map[string]bool)
	for _, c := range found {
		if ctx.Err() != nil {
			return removed, ctx.Err()
		}
		if p.kept(c.Names) || live[c.Labels[labelSandbox]] {
			for _, name := range c.Names {
				there[strings.TrimPrefix(name, "/")] = true
			}
			continue
		}
		p.remove(c.ID)
		removed++
	}
	return removed, p.sweepSockets(there)
}

// kept says whether there is a file for a container of one of these names: it is this Provider's, or is being made, or can be
// attached.
func (p *Provider) kept(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return p.registry.Kept(strings.TrimPrefix(name, "/"+namePrefix))
	})
}

// sweepSockets removes the sockets of containers that are not there. A container is there soon after its sockets.
func (p *Provider) sweepSockets(there map[string]bool) error {
	paths, err := filepath.Glob(filepath.Join(p.dir, "*.sock"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".sock")
		info, err := os.Lstat(path)
		if err != nil || there[namePrefix+name] || p.registry.Kept(name) || time.Since(info.ModTime()) < 2*p.config.StartTimeout {
			continue
		}
		if err := errors.Join(remove(path), remove(filepath.Join(p.dir, name+".ask"))); err != nil {
			return err
		}
	}
	return nil
}
