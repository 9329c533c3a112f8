package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider makes jails.
type Provider struct {
	dir     string
	base    jailed   // what all jails have in common
	cgroups *cgroups // nil where there are none
	users   *users   // nil for an ordinary user
	mother  *mother
	// unpacking is held by whoever unpacks a root.
	unpacking chan struct{}

	mu     sync.Mutex
	boxes  map[string]*box // by id; nil while being made
	making sync.WaitGroup
	closed bool
}

var _ sandbox.Provider = (*Provider)(nil)

// New prepares the run folder and starts the zygote. Errors: invalid_argument for the configuration, unavailable when the folder
// cannot be used.
func New(config Config) (*Provider, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	dir := filepath.Clean(config.RunDir)
	p := &Provider{dir: dir, boxes: make(map[string]*box), unpacking: make(chan struct{}, 1)}
	if err := p.prepare(config.bare); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "provider jail: %w", err)
	}
	var err error
	if p.cgroups, err = findCgroups(dir); err != nil {
		p.cgroups = nil
		if config.Warn != nil {
			config.Warn("provider jail: " + weaker(err))
		}
	} else {
		p.cgroups.sweep(false)
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
	if err := privateDir(p.dir); err != nil {
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
	if !bare {
		if etcDir, err = etc(p.dir); err != nil {
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

// privateDir makes a folder that only this user can enter, or refuses one that somebody else could.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user", dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
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
	if err := p.reserve(spec.ID); err != nil {
		return nil, err
	}
	defer p.making.Done()
	s, err := p.create(ctx, spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		delete(p.boxes, spec.ID)
		return nil, err
	}
	select {
	case <-s.Done(): // forget has been called already
		delete(p.boxes, spec.ID)
	default:
		if _, ok := p.boxes[spec.ID]; ok {
			p.boxes[spec.ID] = s
		}
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

func (p *Provider) reserve(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return schemas.Errorf(schemas.CodeUnavailable, "provider jail is closed")
	}
	if _, ok := p.boxes[id]; ok {
		return schemas.Errorf(schemas.CodeConflict, "sandbox %s is there already", id)
	}
	p.boxes[id] = nil
	p.making.Add(1)
	return nil
}

func (p *Provider) create(ctx context.Context, spec sandbox.Spec) (*box, error) {
	spec.Workspace = filepath.Clean(spec.Workspace)
	made, err := makeWorkspace(spec.Workspace)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", err).With("path", "workspace")
	}
	s, err := p.launch(ctx, spec)
	if err != nil && made {
		// Only what is empty, and only the last folder: the ones above may be others' by now.
		_ = os.Remove(spec.Workspace)
	}
	return s, err
}

func makeWorkspace(dir string) (made bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return false, nil
	case err == nil:
		return false, fmt.Errorf("%s is not a folder", dir)
	case !os.IsNotExist(err):
		return false, err
	}
	return true, os.MkdirAll(dir, 0o700)
}

func (p *Provider) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.boxes, id)
}

// Close ends every sandbox, without grace, and the zygote.
func (p *Provider) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	p.making.Wait()
	p.mu.Lock()
	boxes := make([]*box, 0, len(p.boxes))
	for _, s := range p.boxes {
		boxes = append(boxes, s)
	}
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range boxes {
		// Terminate fails by its context alone, and this one has no end.
		all.Go(func() { _ = s.Terminate(context.Background(), 0) })
	}
	all.Wait()
	if again {
		return nil
	}
	err := p.mother.close()
	if p.users != nil {
		err = errors.Join(err, p.users.close())
	}
	if p.cgroups != nil {
		p.cgroups.sweep(true)
	}
	return err
}
