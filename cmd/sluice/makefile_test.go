package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Ten minutes 7: `go run`, `make build` and `make test` find each other's packages in the build cache. Every flag but the linker's, and cgo,
// are part of the cache's keys.
func TestBuildsShareTheirCache(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		testkit.Missing(t, "make", "apt-get install make")
	}
	cmd := exec.CommandContext(testkit.Context(t), "make", "-n", "build", "test", "RACE=")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	testkit.Must(t, err)
	readme, err := os.ReadFile("../../README.md")
	testkit.Must(t, err)
	commands := 0
	for line := range strings.Lines(string(out) + string(readme)) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, "go build ") && !strings.Contains(line, "go test ") && !strings.HasPrefix(line, "go run ") {
			continue
		}
		commands++
		for _, key := range []string{"CGO_ENABLED", "-trimpath", "-tags", "-race", "flags=", "GO"} {
			if flags := strings.ReplaceAll(line, "-ldflags", ""); strings.Contains(flags, key) {
				t.Errorf("%q has %s, which keeps it from sharing the build cache", line, key)
			}
		}
	}
	testkit.Equal(t, "commands", commands, 4)
}

// Ten minutes 7: the README says about how many packages the first build compiles.
func TestFirstBuildIsAsLargeAsSaid(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	testkit.Must(t, err)
	said := regexp.MustCompile(`compiles about (\d+) packages`).FindSubmatch(readme)
	if said == nil {
		t.Fatal("README.md does not say how many packages the first build compiles")
	}
	about, err := strconv.Atoi(string(said[1]))
	testkit.Must(t, err)
	out, err := exec.CommandContext(testkit.Context(t), "go", "list", "-deps", ".").Output()
	testkit.Must(t, err)
	if n := strings.Count(string(out), "\n"); n < about*95/100 || n > about*105/100 {
		t.Errorf("the build compiles %d packages, and README.md says about %d", n, about)
	}
}
