//go:build !linux || !(amd64 || arm64)

package jail

import (
	"context"
	"runtime"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Provider exists on Linux alone: elsewhere New fails.
type Provider struct{}

var _ sandbox.Reattacher = (*Provider)(nil)

// New fails: unavailable.
func New(Config) (*Provider, error) { return nil, errUnsupported() }

// Name is schemas.ProviderJail.
func (p *Provider) Name() string { return schemas.ProviderJail }

// Create fails: unavailable.
func (p *Provider) Create(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, errUnsupported()
}

// Attach finds nothing.
func (p *Provider) Attach(context.Context) ([]sandbox.Attached, error) { return nil, nil }

// Detach does nothing.
func (p *Provider) Detach() error { return nil }

// Close does nothing.
func (p *Provider) Close() error { return nil }

// Check fails: unavailable.
func Check(string) (Support, error) { return Support{}, errUnsupported() }

func errUnsupported() error {
	return schemas.Errorf(schemas.CodeUnavailable, "provider jail needs Linux on amd64 or arm64, not %s on %s: use docker", runtime.GOOS, runtime.GOARCH)
}
