package jail

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

// claim is what one jail holds on the host.
type claim struct {
	p      *Provider
	name   string
	socket string
	group  *group
	uid    int
	spare  *spare // that becomes the jail; nil once it has, or where there is none
}

// release gives everything back, once the jail is gone.
func (c *claim) release() {
	if c.spare != nil {
		c.spare.discard()
	}
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
	r := record{Record: registry.Record{ID: spec.ID, Spec: spec, Name: c.name}, UID: c.uid}
	l, child, err := p.start(ctx, j, c, &r)
	if failed, ok := errors.AsType[*stepError](err); ok && failed.step == stepIDMap {
		// The workspace's file system cannot map owners: the workspace is given to the jail's user instead.
		if err := workspace.Chown(j.workspace, c.uid, c.uid); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "give the workspace to the jail's user: %w", err)
		}
		j.mapped, r.WorkspaceChowned = false, true
		l, child, err = p.start(ctx, j, c, &r)
	}
	if err != nil {
		return nil, explain(err)
	}
	if p.users != nil {
		p.stock.refill(p.spare)
	}
	return p.box(r, c, l, child), nil
}

// box is a jail whose supervisor answers.
func (p *Provider) box(r record, c *claim, l *link.Link, child *child) *box {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = child.wait() // it can only say that the descriptor was closed, which nobody does before
	}()
	s := link.NewSandbox(l, link.Config{
		Spec: r.Spec, Home: home, Exited: gone, Kill: child.kill,
		Cleanup: func() {
			_ = child.pidfd.Close()
			c.release()
			p.registry.Remove(r.ID)
		},
		SaveSpec: func(spec sandbox.Spec) error {
			r := r
			r.Spec = spec
			return p.registry.Save(r)
		},
	})
	b := &box{Sandbox: s}
	if r.WorkspaceChowned {
		b.owner = r.UID
	}
	return b
}

// start has the zygote start the jail, and greets its supervisor: the greeting is there before the supervisor is. The socket is for
// those who come later. Before the greeting it is stored where the jail is.
func (p *Provider) start(ctx context.Context, j *jailed, c *claim, r *record) (*link.Link, *child, error) {
	socket := p.socket(c.name)
	listener, err := link.Listen(ctx, socket)
	if err != nil {
		return nil, nil, err
	}
	c.socket = socket
	conn, theirs, err := link.Pair()
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	child, report, err := p.begin(ctx, j, c, func() { _ = conn.Close() }, listener, theirs)
	if err = errors.Join(err, listener.Close(), theirs.Close()); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if r.Ref, err = hostproc.RefOf(child.pid); err == nil {
		err = p.registry.Save(*r)
	}
	var l *link.Link
	if err == nil {
		l, err = link.Open(ctx, conn, p.reattachWindow)
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
	if j.hostNet = spec.Network == schemas.NetworkHost; j.hostNet && spec.Rootfs == "" {
		if j.entries, err = p.namedRoot(); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "prepare /etc for the host's network: %w", err)
		}
	}
	if spec.Rootfs != "" {
		folder, err := p.rootfs(ctx, spec.Rootfs)
		if err != nil {
			return nil, err
		}
		if j.entries, err = folderRoot(folder); err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "rootfs: %w", err).With("path", "rootfs")
		}
	}
	if p.users != nil {
		if c.uid, err = p.takeUser(spec, c); err != nil {
			return nil, err
		}
		j.uid, j.mapped = c.uid, true
	}
	if p.cgroups != nil {
		if c.group, err = p.cgroups.make(c.name, spec.Limits); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "cgroup: %w", err)
		}
		j.group = c.group
	}
	return &j, ctx.Err()
}

// namedRoot is the root of a jail that resolves names as the host does.
func (p *Provider) namedRoot() ([]entry, error) {
	if p.bare {
		return p.base.entries, nil
	}
	files, err := hostEtcFiles()
	if err != nil {
		return nil, err
	}
	dir, err := etc(p.dir, files)
	if err != nil {
		return nil, err
	}
	return hostRoot(dir)
}

// takeUser gives the jail a user of its own: a spare's, where one is ready that fits.
func (p *Provider) takeUser(spec sandbox.Spec, c *claim) (int, error) {
	if spec.Rootfs == "" && spec.Network != schemas.NetworkHost {
		for s := p.stock.take(); s != nil; s = p.stock.take() {
			if !s.ended() {
				c.spare = s
				return s.uid, nil
			}
			s.discard()
			p.users.give(s.uid)
		}
	}
	return p.users.take()
}

// begin makes a spare this jail, a new one where none was ready.
func (p *Provider) begin(ctx context.Context, j *jailed, c *claim, failed func(), files ...*os.File) (_ *child, _ *report, err error) {
	given := len(files)
	defer func() {
		for _, f := range files[given:] {
			err = errors.Join(err, f.Close())
		}
	}()
	if j.group != nil {
		opened, err := j.group.open()
		files = append(files, opened...)
		if err != nil {
			return nil, nil, err
		}
	}
	if !j.userns {
		workspace, err := p.takeWorkspace(ctx, j)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, workspace)
	}
	if c.spare == nil {
		if c.spare, err = p.mother.makeSpare(j); err != nil {
			return nil, nil, err
		}
	}
	report, err := c.spare.become(j.become(), failed, files...)
	if err != nil {
		return nil, nil, err
	}
	child := c.spare.child
	c.spare = nil
	return child, report, nil
}

// takeWorkspace is a mount of the workspace that is nowhere yet, whose owners are mapped to the jail's user.
func (p *Provider) takeWorkspace(ctx context.Context, j *jailed) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, j.workspace, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &stepError{"take " + j.workspace, err}
	}
	attr := &unix.MountAttr{Attr_set: rwBind, Propagation: unix.MS_PRIVATE}
	step := "restrict " + j.workspace
	if j.mapped {
		mapping, err := p.users.mapped(ctx, p.mother, j.uid)
		if err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(mapping.Fd())
		step = stepIDMap
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return nil, errors.Join(&stepError{step, err}, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "workspace"), nil
}

// stepIDMap is the one step that may fail for a reason that has a way around it.
const stepIDMap = "map the owners of the workspace"

// spare makes a jail that is nobody's yet.
func (p *Provider) spare() (*spare, error) {
	uid, err := p.users.take()
	if err != nil {
		return nil, err
	}
	j := p.base
	j.uid = uid
	s, err := p.mother.makeSpare(&j)
	if err != nil {
		p.users.give(uid)
	}
	return s, err
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
