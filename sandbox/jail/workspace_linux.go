package jail

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// lookEvery is how often the workspaces of sandboxes in which something runs are measured. What can be written meanwhile is
// bounded by the disk's speed alone; file systems have no limit for a folder that a jail could be given on every machine.
const lookEvery = 2 * time.Second

// box is a jail with the limits that the kernel does not keep: those of its workspace.
type box struct {
	*link.Sandbox
	workspace string
	limits    sandbox.Limits

	mu      sync.Mutex
	running []sandbox.Process
}

var _ sandbox.Attached = (*box)(nil)

// Start runs a command; see sandbox.Sandbox. Errors: limit_exceeded while the workspace holds more than it may.
func (b *box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := measure(b.workspace, b.limits); err != nil {
		return nil, err
	}
	p, err := b.Sandbox.Start(ctx, cmd)
	if err == nil {
		b.mind(p)
	}
	return p, err
}

// Resume takes over a process; see sandbox.Attached.
func (b *box) Resume(ctx context.Context, id string, stdout, stderr int64) (sandbox.Process, error) {
	p, err := b.Sandbox.Resume(ctx, id, stdout, stderr)
	if err == nil {
		b.mind(p)
	}
	return p, err
}

// mind keeps a process for look to end.
func (b *box) mind(p sandbox.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = append(ongoing(b.running), p)
}

// look ends everything in a jail whose workspace has grown past its limits.
func (b *box) look() {
	b.mu.Lock()
	b.running = ongoing(b.running)
	running := append([]sandbox.Process(nil), b.running...)
	b.mu.Unlock()
	if len(running) == 0 || measure(b.workspace, b.limits) == nil {
		return
	}
	for _, p := range running {
		_ = p.Kill(0) // it fails where the jail is gone, and with it the process
	}
}

// ongoing are those that have not ended.
func ongoing(list []sandbox.Process) []sandbox.Process {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	rest := list[:0]
	for _, p := range list {
		if _, err := p.Wait(over); err != nil {
			rest = append(rest, p)
		}
	}
	clear(list[len(rest):])
	return rest
}

// measure is nil while a workspace is within its limits, and limit_exceeded otherwise. It stops counting where that is certain.
func measure(dir string, limits sandbox.Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "workspace: %w", err)
	}
	var files int64
	var bytes int64
	err = walk(root, ".", func(path string) error {
		info, err := root.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // a process has removed it meanwhile
		case err != nil:
			return err
		case info.Mode().IsRegular():
			bytes += info.Size()
		}
		if path != "." {
			files++
		}
		switch {
		case files > limits.WorkspaceFiles:
			return schemas.Errorf(schemas.CodeLimitExceeded, "the workspace holds more than %d files: remove some", limits.WorkspaceFiles)
		case bytes > limits.WorkspaceBytes:
			return schemas.Errorf(schemas.CodeLimitExceeded, "the workspace holds more than %d bytes: remove some files", limits.WorkspaceBytes)
		}
		return nil
	})
	err = errors.Join(err, root.Close())
	if err != nil && !errors.Is(err, schemas.ErrLimitExceeded) {
		// A folder that cannot be read can hide any number of files.
		return schemas.Errorf(schemas.CodeLimitExceeded, "the workspace cannot be measured: %w", err)
	}
	return err
}

// walk visits everything below a folder, and follows no link out of it.
func walk(root *os.Root, dir string, visit func(path string) error) error {
	if err := visit(dir); err != nil {
		return err
	}
	f, err := root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = walk(root, path, visit)
		} else {
			err = visit(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// watch looks at every jail in turn until the provider is closed.
func (p *Provider) watch() {
	defer close(p.watched)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.closing:
			return
		case <-tick.C:
		}
		for _, b := range p.keeper.Boxes() {
			b.look()
		}
	}
}
