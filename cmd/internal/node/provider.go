package node

import (
	"path/filepath"

	"github.com/sluice-dev/sluice/sandbox"
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

// ChooseProvider is the default provider of a worker that was started with this --provider. auto never chooses local. Errors:
// unavailable, invalid_argument.
func ChooseProvider(name string) (string, error) {
	switch name {
	case "", Auto:
		if _, err := jail.Check(); err != nil {
			return "", schemas.Errorf(schemas.CodeUnavailable,
				"no provider that isolates commands runs here: %w; `sluice doctor` tells more. `--provider local` runs them without isolation: only if you trust them", err)
		}
		return Jail, nil
	case Local, Jail, Docker:
		return name, nil
	default:
		return "", noProvider(name)
	}
}

func noProvider(name string) error {
	return schemas.Errorf(schemas.CodeInvalidArgument, "provider: there is no provider %q in this version: jail, docker and local are", name)
}
