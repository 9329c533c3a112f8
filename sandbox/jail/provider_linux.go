package jail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider starts jails.
type Provider struct {
	dir            string // the run folder
	withoutEtc     bool
	base           jailConfig   // what all jails have in common
	cgroups        *cgroupTree  // nil without cgroups
	users          *jailUsers   // nil for an ordinary user
	prestarted     *prestarted  // nil for an ordinary user
	rootfs         *rootfsCache // unpacked root file systems
	zygote         *zygoteClient
	reattachWindow time.Duration
	registry       *registry.Registry[*jail, record]
}

var _ sandbox.Reattacher = (*Provider)(nil)

// record is what it takes to reattach to a jail.
type record struct {
	registry.Record
	hostproc.Ref     // the supervisor
	UID          int `json:"uid,omitempty"` // the jail's own user id; 0 for an ordinary user's jail
	// WorkspaceChowned reports whether the workspace's files were given to that user.
	WorkspaceChowned bool `json:"given,omitempty"`
}

// New prepares the run folder and starts the zygote. Errors: invalid_argument for the configuration, unavailable when the folder
// cannot be used.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Warn == nil {
		config.Warn = func(string) {}
	}
	dir := filepath.Clean(config.RunDir)
	p := &Provider{
		dir: dir, withoutEtc: config.withoutEtc, reattachWindow: registry.ReattachWindow(config.ReattachWindow),
		rootfs: &rootfsCache{dir: filepath.Join(dir, "rootfs"), lock: make(chan struct{}, 1)},
	}
	if err := p.prepare(config.programDir); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider jail: %w", err)
	}
	var err error
	if p.registry, err = registry.New[*jail, record](schemas.ProviderJail, dir, func(err error) { config.Warn(err.Error()) }); err != nil {
		return nil, err
	}
	if p.cgroups, err = findCgroups(dir); err != nil {
		p.cgroups = nil
		config.Warn(fmt.Sprintf("provider jail: no cgroups (%v): memory is limited for each process but not for what processes share, CPU time is not limited, pids are limited", err))
	} else {
		p.cgroups.sweep(false)
	}
	if err := p.reserveUsers(); err != nil {
		return nil, err
	}
	if p.zygote, err = startZygote(p.base.supervisor); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider jail: start the zygote: %w", err)
	}
	if p.users != nil {
		p.prestarted = newPrestarted(config.Pool, p.users, p.startPending)
	}
	return p, nil
}

// prepare sets what all jails have in common.
func (p *Provider) prepare(programDir string) error {
	if err := registry.PrivateDir(p.dir); err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	c := &p.base
	c.root = filepath.Join(p.dir, "root")
	if err := os.MkdirAll(c.root, 0o700); err != nil {
		return err
	}
	var err error
	if c.supervisor, err = bin.Extract(cmp.Or(programDir, p.dir)); err != nil {
		return err
	}
	etcDir := ""
	if !p.withoutEtc {
		if etcDir, err = copyEtc(p.dir, etcFiles); err != nil {
			return fmt.Errorf("prepare /etc: %w", err)
		}
	}
	if c.entries, err = hostEntries(etcDir); err != nil {
		return err
	}
	if c.lastCap, err = readNumber("/proc/sys/kernel/cap_last_cap"); err != nil {
		return err
	}
	oomScore, err := readNumber("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	c.oomScore = strconv.Itoa(oomScore)
	canLower, err := hasCapability(unix.CAP_SYS_RESOURCE)
	if err != nil {
		return err
	}
	c.maskedFiles, c.maskedDirs = maskedProc()
	c.filter = buildFilter()
	c.userns, c.hostUID, c.uid = os.Geteuid() != 0, os.Geteuid(), userNamespaceUID
	// In the user namespace of an ordinary user, the capability does not permit a lower score.
	c.unkillable = canLower && !c.userns
	if c.userns {
		c.inotify = inotifyLimits()
	} else {
		p.users = newJailUsers(p.dir)
	}
	return nil
}

// reserveUsers keeps the user ids of jails that an earlier process left from being allocated again.
func (p *Provider) reserveUsers() error {
	if p.users == nil {
		return nil
	}
	orphans, err := p.registry.Orphans()
	for _, r := range orphans {
		p.users.Reserve(r.UID)
	}
	return err
}

// Name is schemas.ProviderJail.
func (p *Provider) Name() string { return schemas.ProviderJail }

// Run prestarts the jails of Config.Pool and returns.
func (p *Provider) Run(context.Context) error {
	if p.prestarted != nil && p.prestarted.early {
		p.prestarted.refill()
	}
	return nil
}

// Create starts a jail; see sandbox.Provider. It takes a few milliseconds. Errors: conflict for an id that is in use,
// limit_exceeded when 4096 jails exist.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	limits, err := checkSpec(spec)
	if err != nil {
		return nil, err
	}
	spec.Limits = limits
	spec.Workspace = filepath.Clean(spec.Workspace)
	return p.registry.Create(spec, registry.NameOf(spec.ID), func() (*jail, error) { return p.launch(ctx, spec) })
}

func checkSpec(spec sandbox.Spec) (sandbox.Limits, error) {
	limits, err := spec.Limits.WithDefaults()
	if err != nil {
		return limits, err
	}
	if spec.Rootfs != "" && !filepath.IsAbs(spec.Rootfs) {
		return limits, schemas.Errorf(schemas.CodeInvalidArgument, "rootfs: %q is not an absolute path", spec.Rootfs).With("path", "rootfs")
	}
	return limits, link.CheckSpec(spec)
}

// Attach takes over the jails that an earlier process left; see sandbox.Reattacher. The zygote that forked them stays until they
// have ended.
func (p *Provider) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	found, err := p.registry.Attach(ctx, p.reattach)
	if err == nil {
		p.registry.SweepSockets(p.dir)
	}
	return found, err
}

// Detach releases every jail without ending it; see sandbox.Reattacher.
func (p *Provider) Detach() error {
	if !p.registry.Detach() {
		return nil
	}
	return p.stop()
}

// Close ends every jail, without grace, and the zygote.
func (p *Provider) Close() error {
	if !p.registry.Close() {
		return nil
	}
	err := p.stop()
	p.zygote.wait()
	if p.cgroups != nil {
		p.cgroups.sweep(true)
	}
	return err
}

// stop ends the provider's own work, but no jail.
func (p *Provider) stop() error {
	p.prestarted.close()
	err := p.zygote.close()
	if p.users != nil {
		err = errors.Join(err, p.users.close())
	}
	return err
}

func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func hasCapability(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, os.NewSyscallError("capget", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}
