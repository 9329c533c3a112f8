package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

// provider is a row of the provider table. To add a provider, add a row: --provider and its help, the choice of auto, the error
// texts and `sluice doctor` are derived from the table.
type provider struct {
	// name is the value of --provider, of a template's provider and of a session's.
	name string
	// warning is shown to a user who names the provider. Empty for one that isolates, and only such a one is a candidate for
	// auto; the order of the rows is the order of preference.
	warning string
	// images reports that sandboxes are made from images: --image is for this provider.
	images bool
	// usage says what to add to `sluice exec` so that auto, which chose a row before, uses this provider. Empty for none.
	usage string
	// check reports what the provider offers on this machine, to a worker with this run folder. Errors: unavailable, with what is
	// missing and how to get it.
	check func(ctx context.Context, runFolder string) (found string, partial bool, err error)
	// listens reports without a request whether the provider can be offered beside the one that auto chose. Nil: never.
	listens func() bool
	// make returns the provider for a worker.
	make func(*Node) (sandbox.Provider, error)
}

func providerTable() []provider {
	return []provider{
		{name: schemas.ProviderJail, check: checkJail, make: (*Node).newJail},
		{
			name: schemas.ProviderDocker, images: true, usage: "`sluice exec --image IMAGE` uses a container",
			check: checkDocker, listens: docker.Listens, make: (*Node).newDocker,
		},
		{name: schemas.ProviderLocal, warning: local.Warning, check: checkLocal, make: (*Node).newLocal},
	}
}

func (p provider) isolates() bool { return p.warning == "" }

// Warning is what a user should know who names a provider that does not isolate; empty for any other name.
func Warning(name string) string {
	p, _ := row(name) // an unknown name has an empty row
	return p.warning
}

// Unisolated lists the providers that do not isolate. A worker in the caller's own process offers them too.
func Unisolated() (names []string) {
	for _, p := range providerTable() {
		if !p.isolates() {
			names = append(names, p.name)
		}
	}
	return names
}

// ProviderNames lists what --provider takes: "auto, jail, docker or local".
func ProviderNames() string { return oneOf(append([]string{schemas.ProviderAuto}, rowNames()...)) }

// ImageProvider is the provider whose sandboxes are made from images.
func ImageProvider() string {
	table := providerTable()
	return table[slices.IndexFunc(table, func(p provider) bool { return p.images })].name
}

func rowNames() (names []string) {
	for _, p := range providerTable() {
		names = append(names, p.name)
	}
	return names
}

func oneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func row(name string) (provider, error) {
	for _, p := range providerTable() {
		if p.name == name {
			return p, nil
		}
	}
	return provider{}, schemas.Errorf(schemas.CodeInvalidArgument, "unknown provider %q: use %s", name, oneOf(rowNames()))
}

// CheckName checks the name of a provider; auto and an empty name are the worker's choice. Errors: invalid_argument.
func CheckName(name string) error {
	if name == "" || name == schemas.ProviderAuto {
		return nil
	}
	_, err := row(name)
	return err
}

// Choice is which providers a worker offers.
type Choice struct {
	// Default is for commands that name no provider. Empty: such commands are refused.
	Default string
	// Allowed are the providers that commands may name.
	Allowed []string
}

// checkTimeout bounds one provider's check.
const checkTimeout = 5 * time.Second

// Choose returns what a worker offers that is started with this --provider and has this run folder. auto is the first provider of the
// table that isolates and runs here; commands may also name the later ones that listen. auto is never local. Errors: unavailable,
// invalid_argument.
func Choose(ctx context.Context, name, runFolder string) (Choice, error) {
	if name != "" && name != schemas.ProviderAuto {
		p, err := row(name)
		return Choice{p.name, []string{p.name}}, err
	}
	var c Choice
	var failed error
	for _, p := range providerTable() {
		switch {
		case !p.isolates():
		case c.Default != "":
			if p.listens != nil && p.listens() {
				c.Allowed = append(c.Allowed, p.name)
			}
		default:
			if _, _, err := p.checkWithin(ctx, runFolder); err == nil {
				c = Choice{p.name, []string{p.name}}
			} else if failed == nil {
				failed = err
			} else {
				failed = fmt.Errorf("%w; %w", failed, err)
			}
		}
	}
	if c.Default == "" {
		return c, schemas.Errorf(schemas.CodeUnavailable,
			"no provider that isolates commands runs on this machine: %w; run `sluice doctor`, or use --provider local, without isolation, for commands you trust", failed)
	}
	return c, nil
}

// CheckRuntime checks the OCI runtime that an operator names: commands must have no way around it, and the engine must have it, with the
// filter of system calls, unless no engine answers yet. Errors: invalid_argument.
func CheckRuntime(ctx context.Context, c Choice, name string) error {
	if len(c.Allowed) != 1 || c.Default != ImageProvider() {
		return schemas.Errorf(schemas.CodeInvalidArgument, "a runtime, %s, is for containers alone: add --provider %s", name, ImageProvider())
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := docker.CheckRuntime(ctx, "", name); errors.Is(err, schemas.ErrInvalidArgument) {
		return err
	}
	return nil
}

// Check is what a provider offers on this machine.
type Check struct {
	// Provider is its name.
	Provider string
	// Found describes it; with Err, it is what is missing and how to get it.
	Found string
	// Partial reports that it works, but enforces less than it should; Found says what.
	Partial bool
	Err     error
}

// CheckProviders checks each provider of the table, and then auto, for a worker with this run folder.
func CheckProviders(ctx context.Context, runFolder string) (checks []Check) {
	auto := Check{Provider: schemas.ProviderAuto}
	for _, p := range providerTable() {
		c := Check{Provider: p.name}
		if c.Found, c.Partial, c.Err = p.checkWithin(ctx, runFolder); c.Err != nil {
			c.Found = c.Err.Error()
		}
		checks = append(checks, c)
		switch {
		case c.Err != nil || !p.isolates():
		case auto.Found == "" && p.images:
			auto.Found = p.name + ": name the image with --image"
		case auto.Found == "":
			auto.Found = p.name
		case p.usage != "":
			auto.Found += "; " + p.usage
		}
	}
	if auto.Found == "" {
		auto.Err = schemas.Errorf(schemas.CodeUnavailable, "no provider that isolates commands runs on this machine: fix one of those above")
		auto.Found = auto.Err.Error()
	}
	return append(checks, auto)
}

func (p *provider) checkWithin(ctx context.Context, runFolder string) (string, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return p.check(ctx, runFolder)
}

func checkJail(_ context.Context, runFolder string) (string, bool, error) {
	s, err := jail.Check(jailFolder(runFolder))
	return "isolates with namespaces, a system call filter and limits; " + strings.TrimPrefix(s.Limits, "provider jail: "), s.Partial, err
}

func checkDocker(ctx context.Context, _ string) (string, bool, error) {
	if runtime.GOOS != "linux" {
		return "", false, schemas.Errorf(schemas.CodeUnavailable, "provider docker runs on Linux only: use --provider local for commands you trust, or a worker on Linux")
	}
	engine, err := docker.Probe(ctx, "")
	return "engine " + engine, false, err
}

func checkLocal(context.Context, string) (string, bool, error) {
	return "runs everywhere and isolates nothing: use --provider local for commands you trust", false, nil
}

// providers makes the providers that the operator allows. With an error it returns those made before it, for the caller to close.
func (n *Node) providers() (map[string]sandbox.Provider, error) {
	out := make(map[string]sandbox.Provider)
	for _, name := range n.cfg.Allowed {
		p, err := row(name)
		if err != nil {
			return out, err
		}
		if out[name], err = p.make(n); err != nil {
			delete(out, name)
			return out, err
		}
	}
	return out, nil
}

// imageProvider is the one of these providers that makes sandboxes from images; empty for none.
func imageProvider(providers map[string]sandbox.Provider) string {
	if name := ImageProvider(); providers[name] != nil {
		return name
	}
	return ""
}

func (n *Node) newLocal() (sandbox.Provider, error) {
	return provided(local.New(local.Config{RunDir: n.cfg.RunFolder, Warn: n.warn}))
}

func (n *Node) newJail() (sandbox.Provider, error) {
	return provided(jail.New(jail.Config{RunDir: jailFolder(n.cfg.RunFolder), Pool: n.cfg.PoolSize, Warn: n.warn}))
}

// jailFolder is a subfolder, because jail and local give their sockets the same names.
func jailFolder(runFolder string) string { return filepath.Join(runFolder, "j") }

// provided keeps a nil pointer from becoming a provider that is not nil.
func provided[P sandbox.Provider](p P, err error) (sandbox.Provider, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (n *Node) warn(text string) { n.cfg.Log.Warn().Msg(text) }
