package deploy

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
)

// service is a service of compose.yaml. An option that this test does not know fails it.
type service struct {
	Image       string
	Build       map[string]string
	Command     []string
	Environment map[string]string
	Volumes     []string
	Ports       []string
	Networks    []string
	Healthcheck struct {
		Test              []string
		Interval, Timeout string
		Retries           int
	}
	DependsOn       map[string]any `yaml:"depends_on"`
	Init            bool
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	ReadOnly        bool     `yaml:"read_only"`
	Tmpfs           []string
	MemLimit        string `yaml:"mem_limit"`
	CPUs            string
	PidsLimit       string `yaml:"pids_limit"`
	StopGracePeriod string `yaml:"stop_grace_period"`
	Restart         string
}

// Ten minutes 4: the services come up with the options of compose.yaml in the real engine, on images with the Dockerfile's settings, and
// the README's check runs an isolated command through them. The check fails once NATS is stopped: it starts no server of its own.
func TestComposeRunsIsolatedCommands(t *testing.T) {
	if _, err := exec.LookPath("docker"); err != nil {
		testkit.Missing(t, "the docker command", dockertest.InstallCommand)
	}
	dir := testkit.ShortDir(t)
	c := &composition{t: t, dir: dir, name: "sluice-test-" + strings.ToLower(rand.Text()[:8]), token: rand.Text()}
	var file struct {
		Name     string
		Services map[string]*service
		Networks map[string]any
		Volumes  map[string]any
	}
	text, err := os.ReadFile("compose.yaml")
	testkit.Must(t, err)
	in := yaml.NewDecoder(strings.NewReader(c.interpolate(string(text))))
	in.KnownFields(true)
	testkit.Must(t, in.Decode(&file))
	testkit.Equal(t, "services", slices.Sorted(maps.Keys(file.Services)), []string{"nats", "worker"})
	c.docker("network", "create", c.name)
	t.Cleanup(func() { c.docker("network", "rm", c.name) })

	// The official image's entry point is a script that adds the program's name.
	natsImage := dockertest.Derive(t, "nats", `ENTRYPOINT ["/program"]`)
	testkit.BuildAt(t, filepath.Join(dir, "nats-server"), "github.com/nats-io/nats-server/v2")
	nats := c.start("nats", file.Services["nats"], natsImage, "nats-server", "/program", 0)
	c.waitHealthy(nats)

	testkit.BuildAt(t, filepath.Join(dir, "sluice"), "../cmd/sluice")
	workerImage := dockertest.Derive(t, "worker", imageSettings(t)...)
	worker := c.start("worker", file.Services["worker"], workerImage, "sluice", "/usr/local/bin/sluice", 10001)
	c.waitHealthy(worker)

	check := append([]string{"exec", worker}, strings.Fields(readmeLine(t, "docker compose -f deploy/compose.yaml exec worker "))...)
	testkit.Equal(t, "output of the README's check", c.docker(check...), "sandbox\n")
	result := c.docker("exec", worker, "sluice", "exec", "--json", "--", "id", "-un")
	testkit.Contains(t, "result", result, "sandboxuser")
	id := strings.TrimSpace(c.docker("exec", worker, "cat", "/var/lib/sluice/worker-id"))
	testkit.Contains(t, "result", result, fmt.Sprintf("%q", id))
	c.docker("stop", "-t", "5", nats)
	if out, err := exec.CommandContext(t.Context(), "docker", check...).CombinedOutput(); err == nil {
		t.Errorf("the check without NATS: no error, output %q, want an error", out)
	}
}

// imageSettings are the instructions of the Dockerfile's last stage that set the image's configuration.
func imageSettings(t *testing.T) (settings []string) {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	testkit.Must(t, err)
	_, last, ok := strings.Cut(string(text), "\nFROM debian:bookworm-slim\n")
	if !ok {
		t.Fatal("the Dockerfile has no stage FROM debian:bookworm-slim")
	}
	for line := range strings.Lines(strings.ReplaceAll(last, "\\\n", " ")) {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "ENV", "WORKDIR", "USER", "HEALTHCHECK", "ENTRYPOINT", "CMD":
			settings = append(settings, strings.TrimSpace(line))
		}
	}
	return settings
}

// composition is what compose would keep of a project.
type composition struct {
	t                *testing.T
	dir, name, token string
}

// interpolate replaces the variables of compose.yaml.
func (c *composition) interpolate(text string) string {
	return os.Expand(text, func(variable string) string {
		name, _, required := strings.Cut(variable, ":?")
		if name != "SLUICE_NATS_TOKEN" || !required {
			c.t.Errorf("compose.yaml has the variable %q, want only SLUICE_NATS_TOKEN, which is required", variable)
		}
		return c.token
	})
}

// start starts a service's container, with a program in it that its image would hold.
func (c *composition) start(name string, s *service, image, program, path string, uid int) string {
	c.t.Helper()
	full := c.name + "-" + name
	args := []string{
		"run", "-d", "--name", full, "--network", c.name, "--network-alias", name,
		"-v", filepath.Join(c.dir, program) + ":" + path + ":ro", "--restart", s.Restart, fmt.Sprintf("--init=%v", s.Init), fmt.Sprintf("--read-only=%v", s.ReadOnly),
	}
	for key, value := range s.Environment {
		args = append(args, "-e", key+"="+value)
	}
	for _, v := range s.Volumes {
		args = append(args, "-v", c.volume(v, uid))
	}
	for flag, values := range map[string][]string{"--cap-drop": s.CapDrop, "--security-opt": s.SecurityOpt, "--tmpfs": s.Tmpfs} {
		for _, v := range values {
			args = append(args, flag, v)
		}
	}
	for flag, value := range map[string]string{"--memory": s.MemLimit, "--cpus": s.CPUs, "--pids-limit": s.PidsLimit} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	// A shorter interval than the shipped one, for the test's sake.
	args = append(args, "--health-interval", "1s", "--stop-timeout", "40")
	if test := s.Healthcheck.Test; len(test) > 1 {
		args = append(args, "--health-cmd", shellLine(test[1:]), "--health-timeout", cmp.Or(s.Healthcheck.Timeout, "3s"))
	}
	c.docker(append(append(args, image), s.Command...)...)
	c.t.Cleanup(func() {
		if c.t.Failed() {
			out, _ := exec.Command("docker", "logs", full).CombinedOutput()
			c.t.Logf("logs of %s:\n%s", full, out)
		}
		c.docker("rm", "-f", "-v", full)
	})
	return full
}

// shellLine is a command for --health-cmd, which has no form for a list.
func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + w + "'"
	}
	return strings.Join(quoted, " ")
}

// volume is a volume of compose.yaml for docker run. A named one is a folder of the test, with the owner that it gets from the image.
func (c *composition) volume(v string, uid int) string {
	c.t.Helper()
	source, rest, _ := strings.Cut(v, ":")
	path, err := filepath.Abs(source)
	if !strings.HasPrefix(source, ".") {
		path = filepath.Join(c.dir, source)
		testkit.Must(c.t, os.Mkdir(path, 0o700))
		testkit.Must(c.t, os.Chown(path, uid, uid))
	}
	testkit.Must(c.t, err)
	return path + ":" + rest
}

// waitHealthy waits until the container's own check succeeds.
func (c *composition) waitHealthy(container string) {
	c.t.Helper()
	events := exec.CommandContext(testkit.Context(c.t), "docker", "events", "--since", "0", "--filter", "container="+container, "--filter", "event=health_status", "--format", "{{.Status}}")
	out, err := events.StdoutPipe()
	testkit.Must(c.t, err)
	testkit.Must(c.t, events.Start())
	defer func() {
		_ = events.Process.Kill()
		_ = events.Wait() // it was killed
	}()
	seen := ""
	for b := make([]byte, 256); ; {
		n, err := out.Read(b)
		if seen += string(b[:n]); strings.Contains(seen, ": healthy") {
			return
		}
		if err != nil || strings.Contains(seen, "unhealthy") {
			c.t.Fatalf("health of %s: %q, %v, want healthy", container, seen, err)
		}
	}
}

// docker runs a docker command that must succeed, and returns its standard output.
func (c *composition) docker(args ...string) string {
	c.t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("docker", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Errorf("docker %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
		if args[0] != "rm" && args[0] != "network" {
			c.t.FailNow()
		}
	}
	return string(out)
}
