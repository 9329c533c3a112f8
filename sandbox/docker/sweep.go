package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
)

// Run calls Sweep at once and then every Config.SweepInterval, until ctx ends. Its error is always ctx's: an engine that does not
// answer now may answer later.
func (p *Provider) Run(ctx context.Context) error {
	tick := time.NewTicker(p.config.SweepInterval)
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

// Sweep removes containers of this cell and worker, and their sockets, and returns the number of containers. It keeps those of this
// Provider, those in Config.LiveSandboxes, and those with a record file for Attach. Errors: unavailable; those of LiveSandboxes.
func (p *Provider) Sweep(ctx context.Context) (int, error) {
	live, err := p.config.LiveSandboxes(ctx)
	if err != nil {
		return 0, err
	}
	if err := p.negotiate(ctx); err != nil {
		return 0, err
	}
	found, err := p.client.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", labelCell+"="+p.config.Cell), filters.Arg("label", labelWorker+"="+p.config.Worker),
	)})
	if err != nil {
		return 0, engineError(p.client, "list containers", err)
	}
	removed, remaining := 0, make(map[string]bool)
	for _, c := range found {
		if ctx.Err() != nil {
			return removed, ctx.Err()
		}
		if p.tracked(c.Names) || live[c.Labels[labelSandbox]] {
			for _, name := range c.Names {
				remaining[strings.TrimPrefix(name, "/")] = true
			}
			continue
		}
		if p.gone(ctx, c.ID) { // its owner has removed it since the list was made
			continue
		}
		p.remove(c.ID)
		removed++
	}
	return removed, p.sweepSockets(remaining)
}

// gone reports whether the engine has no such container any more.
func (p *Provider) gone(ctx context.Context, id string) bool {
	_, err := p.client.ContainerInspect(ctx, id)
	return errdefs.IsNotFound(err)
}

// tracked reports whether the registry tracks a container of one of these names.
func (p *Provider) tracked(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return p.registry.Tracked(strings.TrimPrefix(name, "/"+namePrefix))
	})
}

// sweepSockets removes the sockets of containers that do not exist. It keeps recent ones, because a container is created after its
// sockets.
func (p *Provider) sweepSockets(containers map[string]bool) error {
	paths, err := filepath.Glob(filepath.Join(p.dir, "*.sock"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".sock")
		info, err := os.Lstat(path)
		if err != nil || containers[namePrefix+name] || p.registry.Tracked(name) || time.Since(info.ModTime()) < 2*p.config.StartTimeout {
			continue
		}
		if err := errors.Join(removeFile(path), removeFile(filepath.Join(p.dir, name+".ask"))); err != nil {
			return err
		}
	}
	return nil
}
