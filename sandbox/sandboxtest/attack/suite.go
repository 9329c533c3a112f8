package attack

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Patience is how long an attack may take: 2 minutes, which only a hang exceeds.
const Patience = 2 * time.Minute

// Factory says how to get what is attacked.
type Factory struct {
	// New makes a provider. The suite closes it. Required.
	New func(t *testing.T) sandbox.Provider
	// Hard says to load the machine too.
	Hard bool
	// MemoryByProcess says that memory is limited by process alone: an allocation then fails, and nothing is killed.
	MemoryByProcess bool
	// Probe is the probe as a program. Empty: it is built, which needs Go.
	Probe string
	// Root are the names at the top of a sandbox's file system; others fail. Empty: they are not looked at.
	Root []string
	// Spare is how many processes more than Limits.PIDs a sandbox may have in all, for the supervisor's own threads.
	Spare int
	// Sockets are patterns of the host's paths by which the supervisors are reached, given the folder of the test: a process
	// inside must find none.
	Sockets []string
}

// attack is one case.
type attack struct {
	name string
	must string // what must happen, for the reader of a failure
	hard bool
	run  func(t *testing.T, s *scene)
}

// Run attacks. Each attacker has a neighbour that must not notice. What loads the machine has a sandbox of its own; the other cases of
// a part share one, until one of them fails: making a container takes longer than most attacks.
func Run(t *testing.T, f Factory) {
	probe := f.Probe
	if probe == "" {
		probe = buildProbe(t)
	}
	// Before any provider is made, so that whatever could pass it on has it; another run's is not taken for it.
	t.Setenv(secretName, "a secret of the worker "+rand.Text())
	for _, part := range []struct {
		name    string
		attacks []attack
	}{{"Calls", callAttacks}, {"Files", fileAttacks}, {"Network", networkAttacks}, {"Processes", processAttacks}, {"Load", loadAttacks}} {
		t.Run(part.name, func(t *testing.T) {
			var shared *scene
			for _, a := range part.attacks {
				if a.hard {
					continue
				}
				if shared == nil {
					shared = newScene(t, f, probe)
				}
				if !t.Run(a.name, func(t *testing.T) { a.attack(t, shared) }) {
					shared = nil
				}
			}
			for _, a := range part.attacks {
				if !a.hard {
					continue
				}
				t.Run(a.name, func(t *testing.T) {
					if !f.Hard {
						t.Skip("loads the machine: make attack")
					}
					a.attack(t, newScene(t, f, probe))
				})
			}
		})
	}
}

func (a *attack) attack(t *testing.T, s *scene) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	s.ctx = ctx
	a.run(t, s)
	s.unharmed(t)
	if t.Failed() {
		t.Log("must: " + a.must)
	}
}

// buildProbe compiles the program that attacks from inside: static, since a sandbox may hold nothing but a shell.
func buildProbe(t *testing.T) string {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where is this file?")
	}
	path := filepath.Join(t.TempDir(), "probe")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./probe")
	cmd.Dir, cmd.Env = filepath.Dir(here), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, out)
	}
	return path
}

// scene is an attacker's sandbox, its neighbour, and what on the host must stay as it is.
type scene struct {
	f         Factory
	ctx       context.Context // of the case
	provider  sandbox.Provider
	box       sandbox.Sandbox // the attacker's
	neighbour sandbox.Sandbox
	workspace string // the attacker's, as the host sees it
	secret    string // a file of the host
	next      string // the neighbour's workspace
	host      string // what describe said before
	began     time.Time
	last      int
	mu        sync.Mutex
}

const (
	treasure = "a secret of the host that no sandbox may see"
	// secretName is a variable of the worker's environment.
	secretName = "SLUICE_SECRET_OF_THE_WORKER"
)

// The attacker's limits, as far as attacks count.
const (
	pids           = 100
	workspaceFiles = 500
	workspaceBytes = 64 << 20
)

func newScene(t *testing.T, f Factory, probe string) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	s := &scene{f: f, ctx: ctx, workspace: t.TempDir(), next: t.TempDir()}
	s.secret = filepath.Join(t.TempDir(), "secret")
	for path, text := range map[string]string{s.secret: treasure, filepath.Join(s.next, "canary"): treasure} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(probe)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.workspace, "probe"), b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.provider = f.New(t)
	t.Cleanup(func() {
		if err := s.provider.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	s.box = s.create(t, sandbox.Spec{ID: "attacker", Workspace: s.workspace, Limits: sandbox.Limits{
		MemoryBytes: 256 << 20, PIDs: pids, TmpBytes: 16 << 20, WorkspaceBytes: workspaceBytes, WorkspaceFiles: workspaceFiles,
	}})
	s.neighbour = s.create(t, sandbox.Spec{ID: "neighbour", Workspace: s.next})
	s.host, s.began = s.describe(t), time.Now()
	return s
}

func (s *scene) create(t *testing.T, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	box, err := s.provider.Create(s.ctx, spec)
	if err != nil {
		t.Fatalf("create %s: %v", spec.ID, err)
	}
	return box
}

// result is a run that has ended.
type result struct {
	sandbox.Exit
	stdout, stderr string
}

// start starts a command under a new id.
func (s *scene) start(in sandbox.Sandbox, cmd sandbox.Command) (sandbox.Process, error) {
	s.mu.Lock()
	s.last++
	cmd.ID = "a" + strconv.Itoa(s.last)
	s.mu.Unlock()
	return in.Start(s.ctx, cmd)
}

// command runs a command to its end. Output beyond 1 MiB is counted and dropped.
func (s *scene) command(t *testing.T, in sandbox.Sandbox, cmd sandbox.Command) result {
	t.Helper()
	p, err := s.start(in, cmd)
	if err != nil {
		t.Fatalf("start %s %q: %v", cmd.Path, cmd.Args, err)
	}
	return s.finish(t, p, cmd)
}

// finish reads a command to its end.
func (s *scene) finish(t *testing.T, p sandbox.Process, cmd sandbox.Command) result {
	t.Helper()
	var text [2]bytes.Buffer
	for {
		out, err := p.Read(s.ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s %q: read: %v", cmd.Path, cmd.Args, err)
		}
		to := &text[0]
		if out.Stream == schemas.Stderr {
			to = &text[1]
		}
		if to.Len() < 1<<20 {
			to.Write(out.Data)
		}
		if err := p.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil {
			t.Fatal(err)
		}
	}
	exit, err := p.Wait(s.ctx)
	if err != nil {
		t.Fatalf("%s %q: wait: %v", cmd.Path, cmd.Args, err)
	}
	return result{Exit: exit, stdout: text[0].String(), stderr: text[1].String()}
}

// sh runs a script in the attacker's sandbox.
func (s *scene) sh(t *testing.T, script string, args ...string) result {
	t.Helper()
	return s.command(t, s.box, sandbox.Command{Path: "sh", Args: append([]string{"-c", script, "sh"}, args...), Timeout: Patience / 2})
}

// probe runs the probe's groups, and gives what came of each name.
func (s *scene) probe(t *testing.T, groups ...string) map[string]string {
	t.Helper()
	return s.probeAt(t, nil, groups...)
}

// probeAt is probe with targets, for the groups that need some.
func (s *scene) probeAt(t *testing.T, targets []string, groups ...string) map[string]string {
	t.Helper()
	r := s.command(t, s.box, sandbox.Command{
		Path: "./probe", Args: groups, Timeout: Patience / 2, Env: map[string]string{"TARGETS": strings.Join(targets, " ")},
	})
	if r.Reason != schemas.ReasonExited || r.Code != 0 {
		t.Errorf("probe %v: %+v %s", groups, r.Exit, r.stderr)
	}
	got := make(map[string]string)
	for line := range strings.Lines(r.stdout) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), "\t")
		got[name] = what
	}
	if len(got) == 0 {
		t.Errorf("probe %v said nothing: %s", groups, r.stderr)
	}
	return got
}

// refused fails for every call that did not fail.
func (s *scene) refused(t *testing.T, groups ...string) map[string]string {
	t.Helper()
	got := s.probe(t, groups...)
	for name, what := range got {
		if what == "done" {
			t.Errorf("%s worked", name)
		}
	}
	return got
}

// alive fails unless a sandbox still runs commands.
func (s *scene) alive(t *testing.T, box sandbox.Sandbox) {
	t.Helper()
	if r := s.command(t, box, sandbox.Command{Path: "echo", Args: []string{"alive"}}); r.stdout != "alive\n" || r.Code != 0 {
		t.Errorf("sandbox %s: %+v %q %q", box.ID(), r.Exit, r.stdout, r.stderr)
	}
}

// unharmed looks at the neighbour and at the host.
func (s *scene) unharmed(t *testing.T) {
	t.Helper()
	s.alive(t, s.neighbour)
	for path, want := range map[string]string{s.secret: treasure, filepath.Join(s.next, "canary"): treasure} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s was changed: %q, %v", path, b, err)
		}
	}
	if names, err := os.ReadDir(s.next); err != nil || len(names) != 1 {
		t.Errorf("the neighbour's workspace has %v, %v", names, err)
	}
	if now := s.describe(t); now != s.host {
		t.Errorf("the host was\n%s\nand is\n%s", s.host, now)
	}
	// The host's clock that can be set has gone as far as the one that cannot.
	now := time.Now()
	if off := now.Round(0).Sub(s.began.Round(0)) - now.Sub(s.began); off.Abs() > clockSlack {
		t.Errorf("the host's clock was set by %v", off)
	}
}

// clockSlack is how far a clock may be corrected by the host itself during an attack.
const clockSlack = 30 * time.Second

// describe is what an attack on the host would change: its name, its mounts, settings of the kernel, its programs.
func (s *scene) describe(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	name, err := os.Hostname()
	fmt.Fprintln(&b, name, err)
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/self/oom_score_adj"} {
		text, err := os.ReadFile(path)
		fmt.Fprintln(&b, path, string(text), err)
	}
	for _, path := range []string{"/bin/sh", "/bin/true", "/etc/passwd"} {
		data, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if statErr != nil {
			t.Fatal(statErr)
		}
		fmt.Fprintf(&b, "%s %x %v %v\n", path, sha256.Sum256(data), info.Mode(), err)
	}
	return b.String()
}
