package jail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

type jail struct {
	*link.Sandbox
	ownerUID int // the user id that the workspace's files are given to; 0 when the mount maps owners
}

var _ sandbox.Attached = (*jail)(nil)

// Start runs a command; see sandbox.Sandbox.
func (j *jail) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if j.ownerUID != 0 {
		// The worker may have added files since the last command.
		if err := giveWorkspace(j.Workspace(), j.ownerUID); err != nil {
			return nil, fmt.Errorf("%w: %w", sandbox.ErrRefused, err)
		}
	}
	return j.Sandbox.Start(ctx, cmd)
}

// giveWorkspace changes the owner of a workspace's files to a jail's user.
func giveWorkspace(dir string, uid int) error {
	if err := workspace.Chown(dir, uid, uid); err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "change the workspace's owner to the jail's user: %w", err)
	}
	return nil
}

type resources struct {
	p       *Provider
	name    string
	socket  string
	cgroup  *cgroup
	uid     int
	pending *pendingJail // the jail's process until the jail is open, and nil before and after
}

// release returns everything, once the jail has ended.
func (r *resources) release() {
	if r.pending != nil {
		r.pending.discard()
	}
	if r.socket != "" {
		_ = os.Remove(r.socket)
	}
	if r.cgroup != nil {
		_ = r.cgroup.remove() // the next sweep removes what is still busy
	}
	if r.uid != 0 && r.p.users != nil {
		r.p.users.Release(r.uid)
	}
}

// kill kills everything in the jail. The end of the supervisor, which is pid 1 there, is the end of all: the kernel kills the rest and
// waits for it first.
func (r *resources) kill(supervisor *process) {
	supervisor.kill()
	if r.cgroup != nil {
		r.cgroup.kill()
	}
}

func (p *Provider) socketPath(name string) string { return filepath.Join(p.dir, name+".sock") }

func (p *Provider) launch(ctx context.Context, spec sandbox.Spec) (_ *jail, err error) {
	res := &resources{p: p, name: registry.NameOf(spec.ID)}
	defer func() {
		if err != nil {
			res.release()
		}
	}()
	config, err := p.configure(ctx, spec, res)
	if err != nil {
		return nil, err
	}
	rec := record{Record: registry.Record{ID: spec.ID, Spec: spec, Name: res.name}, UID: res.uid}
	l, err := p.start(ctx, config, res, &rec)
	if failed, ok := errors.AsType[*callError](err); ok && failed.call == callMapOwners {
		// The workspace's file system cannot map owners.
		if err := giveWorkspace(config.workspace, res.uid); err != nil {
			return nil, err
		}
		config.mapOwners, rec.WorkspaceChowned = false, true
		l, err = p.start(ctx, config, res, &rec)
	}
	if err != nil {
		return nil, withHint(err)
	}
	p.prestarted.refill()
	proc := res.pending.process
	res.pending = nil
	return p.open(rec, res, l, proc, proc.gone()), nil
}

// configure decides what the jail of a Spec needs, and reserves its cgroup and its user id.
func (p *Provider) configure(ctx context.Context, spec sandbox.Spec, res *resources) (*jailConfig, error) {
	c := p.base
	c.limits, c.workspace, c.readOnly = spec.Limits, spec.Workspace, spec.ReadOnly
	c.hostNetwork = spec.Network == schemas.NetworkHost
	var err error
	switch {
	case spec.Rootfs != "":
		dir, err := p.rootfs.folder(ctx, spec.Rootfs)
		if err != nil {
			return nil, err
		}
		if c.entries, err = folderEntries(dir); err != nil {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "rootfs: %w", err).With("path", "rootfs")
		}
	case c.hostNetwork && !p.withoutEtc:
		if c.entries, err = p.hostNetworkEntries(); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "prepare /etc for the host's network: %w", err)
		}
	}
	if p.users != nil {
		if spec.Rootfs == "" && !c.hostNetwork {
			res.pending = p.prestarted.take()
		}
		if res.pending != nil {
			res.uid = res.pending.uid
		} else if res.uid, err = p.users.Allocate(0); err != nil {
			return nil, err
		}
		c.uid, c.mapOwners = res.uid, true
	}
	if p.cgroups != nil {
		if res.cgroup, err = p.cgroups.create(res.name, spec.Limits); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "cgroup: %w", err)
		}
		c.cgroup = res.cgroup
	}
	return &c, ctx.Err()
}

// hostNetworkEntries is the root of a jail that resolves names as the host does.
func (p *Provider) hostNetworkEntries() ([]rootEntry, error) {
	files, err := hostNetworkEtc()
	if err != nil {
		return nil, err
	}
	dir, err := copyEtc(p.dir, files)
	if err != nil {
		return nil, err
	}
	return hostEntries(dir)
}

// start starts the jail as res.pending and greets its supervisor. When it fails, res.release ends the process. The socket is for a
// later worker.
func (p *Provider) start(ctx context.Context, c *jailConfig, res *resources, rec *record) (*link.Link, error) {
	socket := p.socketPath(res.name)
	listener, err := link.Listen(ctx, socket)
	if err != nil {
		return nil, err
	}
	res.socket = socket
	conn, supervisorConn, err := link.Pair()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	report, err := p.finish(ctx, c, res, func() { _ = conn.Close() }, listener, supervisorConn)
	if err = errors.Join(err, listener.Close(), supervisorConn.Close()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l, err := p.greet(ctx, conn, res.pending.process, rec)
	if err != nil {
		res.pending.kill()
	}
	<-report.done
	if err != nil && report.err != nil {
		err = report.err
	}
	return l, err
}

// greet stores the record and then greets the supervisor: the greeting is in the connection's buffer before the supervisor runs.
func (p *Provider) greet(ctx context.Context, conn net.Conn, proc *process, rec *record) (*link.Link, error) {
	var err error
	if rec.Ref, err = hostproc.RefOf(proc.pid); err == nil {
		err = p.registry.Save(*rec)
	}
	if err != nil {
		_ = conn.Close() // the caller kills the jail
		return nil, err
	}
	return link.Open(ctx, conn, p.reattachWindow)
}

// finish sends the final program to the prestarted jail of these resources, or to a new one.
func (p *Provider) finish(ctx context.Context, c *jailConfig, res *resources, onFailure func(), files ...*os.File) (_ *setupReport, err error) {
	passed := len(files)
	defer func() {
		for _, f := range files[passed:] {
			err = errors.Join(err, f.Close())
		}
	}()
	if c.cgroup != nil {
		opened, err := c.cgroup.open()
		files = append(files, opened...)
		if err != nil {
			return nil, err
		}
	}
	if !c.userns {
		mount, err := p.mountWorkspace(ctx, c)
		if err != nil {
			return nil, err
		}
		files = append(files, mount)
	}
	if res.pending == nil {
		if res.pending, err = p.zygote.startPending(c); err != nil {
			return nil, err
		}
	}
	return res.pending.finish(c.finalProgram(), onFailure, files...)
}

// startPending starts a pending jail for any sandbox of this user id.
func (p *Provider) startPending(uid int) (*pendingJail, error) {
	c := p.base
	c.uid = uid
	return p.zygote.startPending(&c)
}

// callMapOwners is the one call whose failure has a fallback.
const callMapOwners = "map the owners of the workspace"

// mountWorkspace returns a detached mount of the workspace that maps the worker's user to the jail's.
func (p *Provider) mountWorkspace(ctx context.Context, c *jailConfig) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, c.workspace, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &callError{"clone the mount of " + c.workspace, err}
	}
	attr := &unix.MountAttr{Attr_set: c.workspaceBind(), Propagation: unix.MS_PRIVATE}
	call := "set mount attributes of " + c.workspace
	if c.mapOwners {
		userns, err := p.users.namespace(ctx, p.zygote, c.uid)
		if err != nil {
			return nil, errors.Join(err, unix.Close(fd))
		}
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
		call = callMapOwners
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return nil, errors.Join(&callError{call, err}, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "workspace"), nil
}

// open returns the jail of a supervisor; gone is closed when that has exited.
func (p *Provider) open(rec record, res *resources, l *link.Link, proc *process, gone <-chan struct{}) *jail {
	s := link.NewSandbox(l, link.Config{
		Spec: rec.Spec, Home: workspacePath, Supervisor: rec.PID, Exited: gone, Kill: func() { res.kill(proc) },
		Cleanup: func() {
			_ = proc.pidfd.Close()
			res.release()
			p.registry.Remove(rec.ID)
		},
		SaveSpec: func(spec sandbox.Spec) error { return p.registry.SaveSpec(rec, spec) },
	})
	j := &jail{Sandbox: s}
	if rec.WorkspaceChowned {
		j.ownerUID = rec.UID
	}
	return j
}

// reattach connects to a jail that an earlier process left, and ends it when that fails.
func (p *Provider) reattach(ctx context.Context, rec record) (*jail, error) {
	res := &resources{p: p, name: rec.Name, socket: p.socketPath(rec.Name), uid: rec.UID}
	if p.cgroups != nil {
		res.cgroup = p.cgroups.existing(rec.Name)
	}
	if rec.UID != 0 && p.users != nil {
		p.users.Reserve(rec.UID)
	}
	pidfd, err := hostproc.OpenPIDFD(rec.Ref)
	if err != nil {
		res.release()
		return nil, err
	}
	proc := &process{pid: rec.PID, pidfd: pidfd}
	gone := proc.gone()
	l, err := link.TakeOver(ctx, res.socket, p.reattachWindow, func() { res.kill(proc) }, gone)
	if err != nil {
		_ = pidfd.Close()
		res.release()
		return nil, err
	}
	return p.open(rec, res, l, proc, gone), nil
}
