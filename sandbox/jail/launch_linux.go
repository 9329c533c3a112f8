package jail

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/keeper"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// claim is what one jail holds on the host.
type claim struct {
	p      *Provider
	name   string
	socket string
	group  *group
	uid    int
}

// release gives everything back, once the jail is gone.
func (c *claim) release() {
	if c.socket != "" {
		_ = os.Remove(c.socket)
	}
	if c.group != nil {
		_ = c.group.remove() // what is still busy goes with the next sweep
	}
	if c.uid != 0 && c.p.users != nil {
		c.p.users.give(c.uid)
	}
}

// jailName names what a jail has on the host.
func jailName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:10])
}

func (p *Provider) launch(ctx context.Context, spec sandbox.Spec) (_ *box, err error) {
	c := &claim{p: p, name: jailName(spec.ID)}
	defer func() {
		if err != nil {
			c.release()
		}
	}()
	j, err := p.jailed(ctx, spec, c)
	if err != nil {
		return nil, err
	}
	r := keeper.Record{ID: spec.ID, Spec: spec, Name: c.name, UID: c.uid}
	l, child, err := p.start(ctx, j, c, &r)
	if failed, ok := errors.AsType[*stepError](err); ok && failed.step == stepIDMap {
		// The workspace's file system cannot map owners: the workspace is given to the jail's user instead.
		if err := giveAway(j.workspace, c.uid); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "give the workspace to the jail's user: %w", err)
		}
		j.idmap = nil
		l, child, err = p.start(ctx, j, c, &r)
	}
	if err != nil {
		return nil, explain(err)
	}
	return p.box(r, c, l, child), nil
}

// box is a jail whose supervisor answers.
func (p *Provider) box(r keeper.Record, c *claim, l *link.Link, child *child) *box {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = child.wait() // it can only say that the descriptor was closed, which nobody does before
	}()
	s := link.NewSandbox(l, link.Config{
		Spec: r.Spec, Home: home, Gone: gone, Force: child.kill,
		Ended: func() {
			_ = child.pidfd.Close()
			c.release()
			p.keeper.Forget(r.ID)
		},
		Bound: func(spec sandbox.Spec) error {
			r := r
			r.Spec = spec
			return p.keeper.Save(r)
		},
	})
	p.watching.Do(func() { go p.watch() })
	return &box{Sandbox: s, workspace: r.Spec.Workspace, limits: r.Spec.Limits}
}

// start has the zygote start the jail, and greets its supervisor: the connection waits in the socket's queue until that takes it,
// so that the greeting is there before the supervisor is. Before the greeting it is stored where the jail is.
func (p *Provider) start(ctx context.Context, j *jailed, c *claim, r *keeper.Record) (*link.Link, *child, error) {
	var files []*os.File
	if j.idmap != nil {
		mapping, err := p.users.mapped(ctx, p.mother, c.uid)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, mapping)
	}
	socket := p.socket(c.name)
	listener, err := link.Listen(ctx, socket)
	if err != nil {
		return nil, nil, err
	}
	c.socket = socket
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	child, report, err := p.mother.begin(j.start(), func() { _ = conn.Close() }, append([]*os.File{listener}, files...)...)
	if err = errors.Join(err, listener.Close()); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	r.PID = child.pid
	if r.Start, err = keeper.StartTime(child.pid); err == nil {
		err = p.keeper.Save(*r)
	}
	var l *link.Link
	if err == nil {
		l, err = link.Open(ctx, conn, p.linger)
	} else {
		_ = conn.Close() // the jail ends, and is of no use
	}
	if err == nil {
		<-report.done
		return l, child, nil
	}
	child.kill()
	<-report.done
	if report.err != nil {
		err = report.err
	}
	return nil, nil, errors.Join(err, child.wait(), child.pidfd.Close())
}

// jailed decides what this jail is.
func (p *Provider) jailed(ctx context.Context, spec sandbox.Spec, c *claim) (*jailed, error) {
	j := p.base
	j.limits, j.workspace = spec.Limits, spec.Workspace
	var err error
	if spec.Rootfs != "" {
		if j.entries, err = folderRoot(spec.Rootfs); err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "rootfs: %w", err).With("path", "rootfs")
		}
	}
	if p.users != nil {
		if c.uid, err = p.users.take(); err != nil {
			return nil, err
		}
		j.uid = c.uid
		to := mappingFD
		j.idmap = &to
	}
	if p.cgroups != nil {
		if c.group, err = p.cgroups.make(c.name, spec.Limits); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "cgroup: %w", err)
		}
		j.group = c.group
	}
	return &j, ctx.Err()
}

// giveAway makes everything in a folder a user's.
func giveAway(dir string, uid int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(walk(root, ".", func(path string) error { return root.Lchown(path, uid, uid) }), root.Close())
}

// explain says what to do about a start that failed.
func explain(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	hint := ""
	switch failed, ok := errors.AsType[*stepError](err); {
	case ok && errors.Is(failed.err, unix.ENOSYS):
		hint = ": provider jail needs Linux 5.12 or newer; use docker, or a newer kernel"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		hint = hintNamespaces()
	}
	return schemas.Errorf(schemas.CodeUnavailable, "start a jail: %w%s", err, hint)
}
