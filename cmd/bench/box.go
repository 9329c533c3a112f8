package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
)

// boxes makes sandboxes of one provider, each with its own name.
type boxes struct {
	provider sandbox.Provider
	dir      string // for the workspaces
	made     int
}

// spec is a new sandbox, whose workspace does not exist yet.
func (m *boxes) spec() sandbox.Spec {
	m.made++
	name := fmt.Sprint("s", m.made)
	return sandbox.Spec{ID: name, Workspace: filepath.Join(m.dir, name)}
}

// warm is a sandbox for many commands. It gets 2 CPUs: its CPU limit is not measured.
func (m *boxes) warm(ctx context.Context) (sandbox.Sandbox, error) {
	spec := m.spec()
	spec.Limits.CPUs = 2
	return m.provider.Create(ctx, spec)
}

// create makes a sandbox for an empty workspace, calls first, and ends the sandbox. The time until first has returned counts.
func (m *boxes) create(first func(context.Context, sandbox.Sandbox) error) op {
	return func(ctx context.Context) (time.Duration, error) {
		spec := m.spec()
		if err := os.Mkdir(spec.Workspace, 0o700); err != nil {
			return 0, err
		}
		begin := time.Now()
		s, err := m.provider.Create(ctx, spec)
		if err != nil {
			return 0, err
		}
		err = first(ctx, s)
		took := time.Since(begin)
		return took, errors.Join(err, s.Terminate(ctx, 0))
	}
}

// trueIn returns a function that runs `true` in a sandbox.
func trueIn(s sandbox.Sandbox) func(context.Context) error {
	var n atomic.Int64
	return func(ctx context.Context) error {
		_, err := run(ctx, s, sandbox.Command{ID: fmt.Sprint("p", n.Add(1)), Path: "true"})
		return err
	}
}

func firstTrue(ctx context.Context, s sandbox.Sandbox) error { return trueIn(s)(ctx) }

// nothing runs no command: only the start of the sandbox counts.
func nothing(context.Context, sandbox.Sandbox) error { return nil }

// run runs a command in a sandbox and reads its output to the end.
func run(ctx context.Context, s sandbox.Sandbox, cmd sandbox.Command) (printed int64, err error) {
	p, err := s.Start(ctx, cmd)
	if err != nil {
		return 0, err
	}
	for {
		out, err := p.Read(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return printed, err
		}
		printed += int64(len(out.Data))
		if err := p.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil {
			return printed, err
		}
	}
	exit, err := p.Wait(ctx)
	if r, ok := p.(interface{ Release() error }); ok && err == nil {
		err = r.Release()
	}
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%s: exit code %d, want 0", cmd.Path, exit.Code)
	}
	return printed, err
}
