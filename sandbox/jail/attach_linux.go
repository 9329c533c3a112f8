package jail

import (
	"context"
	"net"
	"path/filepath"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
)

func (p *Provider) socket(name string) string { return filepath.Join(p.dir, name+".sock") }

// Attach takes over what an earlier process left; see sandbox.Reattacher. The zygote that forked those jails stays until they have
// ended.
func (p *Provider) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	found, err := p.registry.Attach(ctx, p.reattach)
	if err == nil {
		p.registry.SweepSockets(p.dir)
	}
	return found, err
}

func (p *Provider) reattach(ctx context.Context, r record) (*box, error) {
	c := &claim{p: p, name: r.Name, socket: p.socket(r.Name), uid: r.UID}
	if p.cgroups != nil {
		c.group = p.cgroups.of(r.Name)
	}
	if r.UID != 0 && p.users != nil {
		p.users.keep(r.UID)
	}
	pidfd, err := hostproc.OpenPIDFD(r.Ref)
	if err != nil {
		c.release()
		return nil, err
	}
	child := &child{pid: r.PID, pidfd: pidfd}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	var l *link.Link
	if err == nil {
		l, err = link.Reopen(ctx, conn, p.reattachWindow)
	}
	if err != nil {
		child.kill()
		_ = child.wait() // it can only say that the descriptor was closed
		_ = pidfd.Close()
		c.release()
		return nil, err
	}
	return p.box(r, c, l, child), nil
}
