package docker

import (
	"context"
	"crypto/rand"
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

// abandonedAfter is how long a container of another run folder has not run before it is swept: its own worker removes it at once.
const abandonedAfter = 10 * time.Minute

// Sweep removes containers of this cell and worker, and their sockets, and returns the number of containers. It keeps those of this
// Provider, and those with a record file for Attach. Those of another run folder, which may be lost, or another worker's of the same name,
// it keeps while they run: without a worker, they end by themselves. Errors: unavailable.
func (p *Provider) Sweep(ctx context.Context) (int, error) {
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
		if p.tracked(c.Names) {
			for _, name := range c.Names {
				remaining[strings.TrimPrefix(name, "/")] = true
			}
			continue
		}
		state, err := p.client.ContainerInspect(ctx, c.ID)
		if errdefs.IsNotFound(err) { // its owner has removed it since the list was made
			continue
		}
		if c.Labels[labelFolder] != p.folder && (err != nil || !abandoned(state)) {
			continue
		}
		p.remove(c.ID)
		removed++
	}
	return removed, p.sweepSockets(remaining)
}

// abandoned reports whether a container has not run for a time.
func abandoned(c container.InspectResponse) bool {
	if c.ContainerJSONBase == nil || c.State == nil || c.State.Running {
		return false
	}
	last, err := time.Parse(time.RFC3339Nano, c.State.FinishedAt)
	if err != nil || last.IsZero() { // it never ran
		last, err = time.Parse(time.RFC3339Nano, c.Created)
	}
	return err == nil && time.Since(last) > abandonedAfter
}

// folderName returns the name of a run folder, which a file in it has: two workers of a machine may have the same name, in the same cell.
func folderName(dir string) (string, error) {
	path := filepath.Join(dir, "name")
	name, err := os.ReadFile(path)
	if err == nil && labelValue.Match(name) {
		return string(name), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	temp := path + "." + rand.Text()
	if err := os.WriteFile(temp, []byte(rand.Text()), 0o600); err != nil {
		return "", err
	}
	if err == nil {
		err = os.Rename(temp, path) // it was cut off
	} else if err = os.Link(temp, path); errors.Is(err, os.ErrExist) {
		err = nil // another process was first
	}
	_ = os.Remove(temp)
	if err != nil {
		return "", err
	}
	name, err = os.ReadFile(path)
	return string(name), err
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
