package deploy

import (
	"os"
	"os/exec"
	"testing"
)

// build builds a static program. With an empty cache that takes minutes: the test's own timeout bounds it.
func build(t *testing.T, path, pkg string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
}
