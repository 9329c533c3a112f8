package docker

import (
	"os"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest/attack"
)

// TestAttack is the quick part of the attack suite; all of it with SLUICE_ATTACK, which `make attack` sets.
func TestAttack(t *testing.T) {
	dockertest.Image(t)
	attack.Run(t, attack.Factory{
		New:   func(t *testing.T) sandbox.Provider { return newProvider(t, nil) },
		Hard:  os.Getenv("SLUICE_ATTACK") != "",
		Root:  []string{".dockerenv", "bin", "dev", "etc", "proc", "root", "sluice", "sys", "tmp", "workspace"},
		Spare: spare, Sockets: []string{"sl*/run/docker/*.sock"},
	})
}
