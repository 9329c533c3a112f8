package deploy

import (
	"os"
	"os/exec"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// build builds a static program.
func build(t *testing.T, path, pkg string) {
	t.Helper()
	cmd := exec.CommandContext(testkit.Context(t), "go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
}
