package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider makes jails.
type Provider struct {
	dir            string
	bare           bool     // without an /etc
	base           jailed   // what all jails have in common
	cgroups        *cgroups // nil where there are none
	users          *users   // nil for an ordinary user
	mother         *mother
	stock          stock
	reattachWindow time.Duration
	registry       *registry.Registry[*box, record]
	// unpacking is held by whoever unpacks a root.
	unpacking chan struct{}
}

// record is what reattaching to a jail takes.
type record struct {
	registry.Record
	hostproc.Ref     // the supervisor
	UID          int `json:"uid,omitempty"` // the jail's user; 0 where it has none to itself
	// WorkspaceChowned reports whether the workspace's files were given to that user.
	WorkspaceChowned bool `json:"given,omitempty"`
}

var _ sandbox.Reattacher = (*Provider)(nil)

// New prepares the run folder and starts the zygote. Errors: invalid_argument for the configuration, unavailable when the folder
// cannot be used.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	dir := filepath.Clean(config.RunDir)
	p := &Provider{
		dir: dir, reattachWindow: registry.ReattachWindow(config.ReattachWindow), stock: stock{closing: make(chan struct{})}, unpacking: make(chan struct{}, 1),
	}
	if err := p.prepare(config.bare); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider jail: %w", err)
	}
	var err error
	if p.registry, err = registry.New[*box, record](Name, dir); err != nil {
		return nil, err
	}
	if p.cgroups, err = findCgroups(dir); err != nil {
		p.cgroups = nil
		if config.Warn != nil {
			config.Warn("provider jail: " + weaker(err))
		}
	} else {
		p.cgroups.sweep(false)
	}
	if err := p.reserve(); err != nil {
		return nil, err
	}
	if p.mother, err = newMother(p.base.supervisor); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider jail: start the zygote: %w", err)
	}
	return p, nil
}

// weaker says which limits hold without cgroups.
func weaker(why error) string {
	return fmt.Sprintf("no cgroups (%v): memory is limited by process, and what processes share not at all; CPU time is not limited; pids are", why)
}

func (p *Provider) prepare(bare bool) error {
	if err := registry.PrivateDir(p.dir); err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	j := &p.base
	j.base = filepath.Join(p.dir, "root")
	if err := os.MkdirAll(j.base, 0o700); err != nil {
		return err
	}
	var err error
	if j.supervisor, err = bin.Extract(p.dir); err != nil {
		return err
	}
	etcDir := ""
	p.bare = bare
	if !bare {
		if etcDir, err = etc(p.dir, etcFiles); err != nil {
			return fmt.Errorf("prepare /etc: %w", err)
		}
	}
	if j.entries, err = hostRoot(etcDir); err != nil {
		return err
	}
	if j.lastCap, err = readNumber("/proc/sys/kernel/cap_last_cap"); err != nil {
		return err
	}
	own, err := readNumber("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	j.score = strconv.Itoa(own)
	if j.unkillable, err = capable(unix.CAP_SYS_RESOURCE); err != nil {
		return err
	}
	j.maskedFiles, j.maskedDirs = masked()
	j.filter = buildFilter()
	// In the namespace of an ordinary user a capability does not reach this.
	j.unkillable = j.unkillable && os.Geteuid() == 0
	j.userns, j.hostUID, j.uid = os.Geteuid() != 0, os.Geteuid(), insideUID
	if !j.userns {
		p.users = newUsers(p.dir)
	}
	return nil
}

// Name is "jail".
func (p *Provider) Name() string { return Name }

// Create starts a jail; see sandbox.Provider. It takes a few milliseconds. Errors: conflict for an id that is in use,
// limit_exceeded when there are 4096 jails already.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	limits, err := checkSpec(spec)
	if err != nil {
		return nil, err
	}
	spec.Limits = limits
	spec.Workspace = filepath.Clean(spec.Workspace)
	s, err := p.registry.Create(spec, jailName(spec.ID), func() (*box, error) { return p.launch(ctx, spec) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

func checkSpec(spec sandbox.Spec) (sandbox.Limits, error) {
	limits, err := spec.Limits.WithDefaults()
	if err != nil {
		return limits, err
	}
	if err := schemas.CheckID("id", spec.ID); err != nil {
		return limits, err
	}
	if !filepath.IsAbs(spec.Workspace) {
		return limits, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %q is not an absolute path", spec.Workspace).With("path", "workspace")
	}
	if spec.Rootfs != "" && !filepath.IsAbs(spec.Rootfs) {
		return limits, schemas.Errorf(schemas.CodeInvalidArgument, "rootfs: %q is not an absolute path", spec.Rootfs).With("path", "rootfs")
	}
	_, err = link.Environ(home, spec, sandbox.Command{})
	return limits, err
}

// reserve keeps the users of the jails that an earlier process left from being given to others.
func (p *Provider) reserve() error {
	if p.users == nil {
		return nil
	}
	left, err := p.registry.Orphans()
	for _, r := range left {
		p.users.keep(r.UID)
	}
	return err
}

// Detach gives every jail up without ending it; see sandbox.Reattacher.
func (p *Provider) Detach() error {
	if !p.registry.Detach() {
		return nil
	}
	return p.stop()
}

// Close ends every sandbox, without grace, and the zygote.
func (p *Provider) Close() error {
	if !p.registry.Close() {
		return nil
	}
	err := p.stop()
	p.mother.wait()
	if p.cgroups != nil {
		p.cgroups.sweep(true)
	}
	return err
}

// stop ends what the provider itself does.
func (p *Provider) stop() error {
	close(p.stock.closing)
	p.stock.close()
	err := p.mother.close()
	if p.users != nil {
		err = errors.Join(err, p.users.close())
	}
	return err
}
