package attack

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/schemas"
)

// Factory makes the providers under attack.
type Factory struct {
	// New makes a provider. The suite closes it. Required.
	New func(t *testing.T) sandbox.Provider
	// Load also runs the cases that load the machine, and bounds this process's memory and the time of a neighbour's commands in each case.
	Load bool
	// Table is a file to which a line for each case is appended: its result, this process's peak of memory, and how many times as long the
	// neighbour's commands took. Default: none.
	Table string
	// MemoryByProcess says that the provider limits memory only by process, and no CPU time: an allocation then fails, and nothing is killed.
	MemoryByProcess bool
	// Probe is the path of the compiled probe. Default: the suite builds it, which needs Go.
	Probe string
	// Root lists the names allowed at the top of a sandbox's file system. Default: not checked.
	Root []string
	// SupervisorPIDs is how many pids a sandbox has in addition to Limits.PIDs, for the supervisor's threads.
	SupervisorPIDs int
	// Shared names what all sandboxes together have of the kernel, because their processes have one user on the host: inotify, signal,
	// timer, pipe, queue. Default: nothing.
	Shared []string
	// Sockets are patterns, below the folder for temporary files, of the host's sockets by which supervisors are reached. A process
	// inside a sandbox must not reach them.
	Sockets []string
}

type attack struct {
	name string
	want string // what must happen, printed with a failure
	run  func(t *testing.T, f *fixture)
}

// Run runs the attacks. Each attacker has a neighbour, which must not be affected. A case that loads the machine has its own sandbox. The
// other cases of a part share one until one of them fails, because a container takes longer to start than most attacks take.
func Run(t *testing.T, factory Factory) {
	probe := factory.Probe
	if probe == "" {
		// It is static, because a sandbox may hold no more than a shell.
		probe = testkit.Build(t, "sandbox/sandboxtest/attack/probe")
	}
	// Set before any provider exists, so that whatever could pass it on has it. Random, so that it is not the secret of another run.
	t.Setenv(secretVariable, "a secret of the worker "+rand.Text())
	for _, part := range []struct {
		name    string
		attacks []attack
		load    bool
	}{
		{"Calls", callAttacks, false},
		{"Files", fileAttacks, false},
		{"Network", networkAttacks, false},
		{"Processes", processAttacks, false},
		{"Workspace", workspaceAttacks, false},
		{"Load", loadAttacks, true},
	} {
		t.Run(part.name, func(t *testing.T) {
			var shared *fixture
			for _, a := range part.attacks {
				if part.load {
					t.Run(a.name, func(t *testing.T) {
						if !factory.Load {
							t.Skip("this case loads the machine: run `make attack`")
						}
						a.attack(t, part.name, newFixture(t, factory, probe), true)
					})
					continue
				}
				if shared == nil {
					shared = newFixture(t, factory, probe)
				}
				if !t.Run(a.name, func(t *testing.T) { a.attack(t, part.name, shared, false) }) {
					shared = nil
				}
			}
		})
	}
}

// attack runs a case, beside commands of the neighbour if it is one of load.
func (a *attack) attack(t *testing.T, part string, f *fixture, load bool) {
	f.ctx = testkit.Context(t)
	r := row{provider: f.provider.Name(), name: part + "/" + a.name, result: "held"}
	if os.Geteuid() != 0 {
		r.provider += ", user"
	}
	defer func() {
		switch {
		case t.Skipped():
			r.result = "skipped"
		case t.Failed():
			r.result = "BROKEN"
			t.Log("want: " + a.want)
		}
		r.write(t, f.factory.Table)
	}()
	resetPeak()
	if load {
		r.slowdown = f.slowdown(t, func() { a.run(t, f) })
	} else {
		a.run(t, f)
	}
	r.memory = peak(t)
	f.wantUnharmed(t)
	if f.factory.Load && r.memory > maxMemory {
		t.Errorf("this process had %d MB in memory, want at most %d", r.memory>>20, maxMemory>>20)
	}
	if r.slowdown > maxSlowdown && !f.factory.MemoryByProcess {
		t.Errorf("a neighbour's commands took %.1f times as long as before, want at most %d times", r.slowdown, maxSlowdown)
	}
}

// fixture is an attacker's sandbox, its neighbour, and the state of the host that must not change.
type fixture struct {
	factory   Factory
	ctx       context.Context // of the case
	provider  sandbox.Provider
	attacker  sandbox.Sandbox
	neighbour sandbox.Sandbox

	workspace          string // the attacker's, on the host
	neighbourWorkspace string // on the host
	secretFile         string // on the host

	hostBefore string // hostState before the attacks
	began      time.Time
	lastID     int
}

const (
	secretText = "a secret of the host that no sandbox may see"
	// secretVariable is a variable of the worker's environment.
	secretVariable = "SLUICE_SECRET_OF_THE_WORKER"
)

// The attacker's limits that attacks rely on.
const (
	attackerMemory = 256 << 20
	pidLimit       = 100
	workspaceFiles = 500
	workspaceBytes = 64 << 20
)

func attackerLimits() sandbox.Limits {
	return sandbox.Limits{MemoryBytes: attackerMemory, PIDs: pidLimit, TmpBytes: 16 << 20, WorkspaceBytes: workspaceBytes, WorkspaceFiles: workspaceFiles}
}

func newFixture(t *testing.T, factory Factory, probe string) *fixture {
	t.Helper()
	f := &fixture{factory: factory, ctx: testkit.Context(t), workspace: t.TempDir(), neighbourWorkspace: t.TempDir()}
	f.secretFile = filepath.Join(t.TempDir(), "secret")
	for _, path := range f.canaries() {
		testkit.Must(t, os.WriteFile(path, []byte(secretText), 0o644))
	}
	b, err := os.ReadFile(probe)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(f.workspace, "probe"), b, 0o755))
	f.provider = factory.New(t)
	t.Cleanup(func() {
		if err := f.provider.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	f.attacker = f.create(t, sandbox.Spec{ID: "attacker", Workspace: f.workspace, Limits: attackerLimits()})
	f.neighbour = f.create(t, sandbox.Spec{ID: "neighbour", Workspace: f.neighbourWorkspace})
	f.hostBefore, f.began = hostState(t), time.Now()
	return f
}

// canaries are files of the host that hold secretText.
func (f *fixture) canaries() []string {
	return []string{f.secretFile, filepath.Join(f.neighbourWorkspace, "canary")}
}

func (f *fixture) create(t *testing.T, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := f.provider.Create(f.ctx, spec)
	testkit.Must(t, err)
	return s
}

func (f *fixture) start(in sandbox.Sandbox, cmd sandbox.Command) (sandbox.Process, error) {
	f.lastID++
	cmd.ID = "a" + strconv.Itoa(f.lastID)
	return in.Start(f.ctx, cmd)
}

func (f *fixture) run(t *testing.T, in sandbox.Sandbox, cmd sandbox.Command) sandboxtest.Result {
	t.Helper()
	p, err := f.start(in, cmd)
	if err != nil {
		t.Fatalf("start %s %q: %v", cmd.Path, cmd.Args, err)
	}
	return f.finish(t, p)
}

func (f *fixture) finish(t *testing.T, p sandbox.Process) sandboxtest.Result {
	t.Helper()
	r, err := sandboxtest.Finish(f.ctx, p)
	testkit.Must(t, err)
	return r
}

// readUntil reads what a process prints until that has a text, and returns all of it.
func (f *fixture) readUntil(t *testing.T, p sandbox.Process, text string) string {
	t.Helper()
	printed := ""
	for !strings.Contains(printed, text) {
		out, err := p.Read(f.ctx)
		if err != nil {
			t.Fatalf("read what a process prints after %q: %v", printed, err)
		}
		printed += string(out.Data)
	}
	return printed
}

// sh runs a script in the attacker's sandbox.
func (f *fixture) sh(t *testing.T, script string, args ...string) sandboxtest.Result {
	t.Helper()
	return f.run(t, f.attacker, sandbox.Command{Path: "sh", Args: append([]string{"-c", script, "sh"}, args...), Timeout: testkit.Timeout / 2})
}

// wantSilent fails the test when a script prints to its standard output. what names the failure.
func (f *fixture) wantSilent(t *testing.T, what, script string, args ...string) {
	t.Helper()
	if r := f.sh(t, script, args...); r.Stdout != "" {
		t.Errorf("%s: stdout = %q, want none", what, r.Stdout)
	}
}

// wantFewProcesses fails the test when ten or more processes run in the attacker's sandbox.
func (f *fixture) wantFewProcesses(t *testing.T) {
	t.Helper()
	if n := f.sh(t, "ls -d /proc/[0-9]* | wc -l").Stdout; len(n) > 2 {
		t.Errorf("%s processes are left, want fewer than 10", strings.TrimSpace(n))
	}
}

// done is what the probe prints for an attempt that succeeded.
const done = "done"

// probe runs a group of the probe, with the targets that it needs, and returns the result of each attempt by its name.
func (f *fixture) probe(t *testing.T, group string, targets ...string) map[string]string {
	t.Helper()
	r := f.run(t, f.attacker, sandbox.Command{
		Path: "./probe", Args: []string{group}, Timeout: testkit.Timeout / 2, Env: map[string]string{"TARGETS": strings.Join(targets, " ")},
	})
	if r.Reason != schemas.ReasonExited || r.Code != 0 {
		t.Errorf("probe %s: exit = %+v, want exited 0; stderr %s", group, r.Exit, r.Stderr)
	}
	got := results(r.Stdout)
	if len(got) == 0 {
		t.Errorf("probe %s printed nothing, want a line for each attempt; stderr %s", group, r.Stderr)
	}
	return got
}

// results are those of a probe's attempts, by name.
func results(stdout string) map[string]string {
	got := make(map[string]string)
	for line := range strings.Lines(stdout) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), "\t")
		got[name] = what
	}
	return got
}

// wantRefused fails the test for every attempt of a group that succeeded.
func (f *fixture) wantRefused(t *testing.T, group string, targets ...string) map[string]string {
	t.Helper()
	got := f.probe(t, group, targets...)
	for name, what := range got {
		if what == done {
			t.Errorf("%s succeeded, want an error", name)
		}
	}
	return got
}

// wantAlive fails the test unless a sandbox still runs commands.
func (f *fixture) wantAlive(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	if r := f.run(t, s, sandbox.Command{Path: "echo", Args: []string{"alive"}}); r.Stdout != "alive\n" || r.Code != 0 {
		t.Errorf("echo in sandbox %s: exit = %+v, stdout %q, stderr %q, want code 0 and %q", s.ID(), r.Exit, r.Stdout, r.Stderr, "alive\n")
	}
}

// wantUnharmed fails the test when the neighbour or the host has changed.
func (f *fixture) wantUnharmed(t *testing.T) {
	t.Helper()
	f.wantAlive(t, f.neighbour)
	for _, path := range f.canaries() {
		if b, err := os.ReadFile(path); err != nil || string(b) != secretText {
			t.Errorf("%s = %q (error: %v), want it unchanged", path, b, err)
		}
	}
	if names, err := os.ReadDir(f.neighbourWorkspace); err != nil || len(names) != 1 {
		t.Errorf("the neighbour's workspace has %v (error: %v), want one file", names, err)
	}
	testkit.Equal(t, "the state of the host", hostState(t), f.hostBefore)
	// The settable clock must have advanced as far as the monotonic one.
	now := time.Now()
	if off := now.Round(0).Sub(f.began.Round(0)) - now.Sub(f.began); off.Abs() > clockSlack {
		t.Errorf("the host's clock was set by %v, want no change", off)
	}
}

// clockSlack is how far the host itself may correct its clock during an attack.
const clockSlack = 30 * time.Second

// hostState describes what an attack on the host would change: its name, kernel settings, programs.
func hostState(t *testing.T) string {
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
		testkit.Must(t, statErr)
		fmt.Fprintf(&b, "%s %x %v %v\n", path, sha256.Sum256(data), info.Mode(), err)
	}
	return b.String()
}
