package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

// providers makes the providers the operator allows.
func (n *Node) providers() (map[string]sandbox.Provider, error) {
	out := make(map[string]sandbox.Provider)
	for _, name := range n.cfg.Allowed {
		switch name {
		case Local:
			p, err := local.New(local.Config{RunDir: n.cfg.RunFolder, Warn: func(text string) {
				n.cfg.Log.Warn().Msg(text)
			}})
			if err != nil {
				return nil, err
			}
			out[name] = p
		case Docker:
			p, err := n.newDocker()
			if err != nil {
				return nil, err
			}
			out[name] = p
		case Jail:
			// A folder of its own: the two providers name their sockets alike.
			p, err := jail.New(jail.Config{RunDir: filepath.Join(n.cfg.RunFolder, "j"), Warn: func(text string) {
				n.cfg.Log.Warn().Msg(text)
			}})
			if err != nil {
				return nil, err
			}
			out[name] = p
		default:
			return nil, noProvider(name)
		}
	}
	return out, nil
}

// Names of providers.
const (
	Auto   = "auto"   // whichever isolates best here
	Jail   = "jail"   // Linux namespaces
	Docker = "docker" // containers; needs an engine and an image
	Local  = "local"  // isolates nothing
)

// Choice is which kinds of sandbox a worker makes.
type Choice struct {
	// Default is for commands that name none. Empty: such commands are refused.
	Default string
	// Allowed are those that commands may name.
	Allowed []string
}

// probePatience is how long an engine may take to say that it is there.
const probePatience = 5 * time.Second

// Choose is what a worker offers that was started with this --provider. auto is jail, and docker where that is impossible; where
// both are there, commands may name docker too. It never comes to local. Errors: unavailable, invalid_argument.
func Choose(ctx context.Context, name string) (Choice, error) {
	switch name {
	case "", Auto:
	case Local, Jail, Docker:
		return Choice{name, []string{name}}, nil
	default:
		return Choice{}, noProvider(name)
	}
	_, jailErr := jail.Check()
	if jailErr == nil {
		c := Choice{Jail, []string{Jail}}
		if docker.Listens() {
			c.Allowed = append(c.Allowed, Docker)
		}
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	_, dockerErr := docker.Probe(ctx, "")
	if dockerErr == nil {
		return Choice{Docker, []string{Docker}}, nil
	}
	return Choice{}, schemas.Errorf(schemas.CodeUnavailable,
		"no provider that isolates commands runs here: %w; %w; `sluice doctor` tells more. `--provider local` runs them without isolation: only if you trust them", jailErr, dockerErr)
}

func noProvider(name string) error {
	return schemas.Errorf(schemas.CodeInvalidArgument, "provider: there is no provider %q in this version: jail, docker and local are", name)
}
