package node

import (
	"runtime"

	"github.com/sluice-dev/sluice/sandbox"
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
		default:
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "provider: there is no provider %q in this version: docker and local are", name)
		}
	}
	return out, nil
}

// Names of providers.
const (
	Auto   = "auto"   // whichever isolates best here
	Docker = "docker" // containers; needs an engine and an image
	Local  = "local"  // isolates nothing
)

// ChooseProvider is the default provider of a worker that was started with this --provider. auto never chooses local. Errors:
// unavailable, invalid_argument.
func ChooseProvider(name string) (string, error) {
	switch name {
	case "", Auto:
		return "", schemas.Errorf(schemas.CodeUnavailable,
			"no provider that isolates commands is in this version on %s: choose `--provider local` if you trust what you run, since it isolates nothing; `sluice doctor` tells more", runtime.GOOS)
	case Docker, Local:
		return name, nil
	default:
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "provider: there is no provider %q in this version: docker and local are", name)
	}
}
