package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/schemas"
)

// Processes that resist their end, or exhaust what others need.
var processAttacks = []attack{
	{"IgnoredSignals", "descendants that ignore SIGTERM, leave the session and fork twice end with their process", func(t *testing.T, f *fixture) {
		r := f.run(t, f.attacker, sandbox.Command{Path: "sh", Args: []string{"-c",
			`trap '' TERM HUP INT; (setsid sh -c 'trap "" TERM; (setsid sleep 300 &) ; sleep 300' >/dev/null 2>&1 &); sleep 300`},
			Timeout: time.Second, Grace: 100 * time.Millisecond})
		testkit.Equal(t, "exit reason", r.Reason, schemas.ReasonTimedOut)
		f.wantFewProcesses(t)
	}},
	{"FirstThreadEnded", "descendants whose first thread has ended, as a zombie does, end with their process", func(t *testing.T, f *fixture) {
		other, err := f.start(f.attacker, sandbox.Command{Path: "cat", Stdin: true}) // else they could only belong to one process
		testkit.Must(t, err)
		const others = `for i in 1 2 3; do setsid ./probe headless & done; until [ -e headless3 ]; do sleep 0.01; done`
		r := f.run(t, f.attacker, sandbox.Command{Path: "sh", Args: []string{"-c", others}, Timeout: testkit.Timeout / 2})
		testkit.Equal(t, "exit reason", r.Reason, schemas.ReasonExited)
		testkit.Equal(t, "count of killed descendants", r.Killed, 3)
		if left := f.sh(t, "cat /proc/[0-9]*/comm").Stdout; strings.Contains(left, "probe") {
			t.Errorf("%s are left", strings.Join(strings.Fields(left), ", "))
		}
		testkit.Must(t, other.Kill(0))
		f.finish(t, other)
	}},
	{"PIDLimit", "a sandbox has no more processes than its limit", func(t *testing.T, f *fixture) { f.wantPIDLimit(t) }},
	{"ExhaustedPIDs", "without a free pid a start is refused, signals and kills work, and the sandbox survives", func(t *testing.T, f *fixture) { f.exhaustPIDs(t) }},
	{"OpenFiles", "a process opens at most 1,024 files, and cannot raise that", func(t *testing.T, f *fixture) {
		got := f.probe(t, "openfiles")
		if n, err := strconv.Atoi(got["opened"]); err != nil || n < 1000 || n > 1024 {
			t.Errorf("a process opened %q files, want about 1,024", got["opened"])
		}
		testkit.Equal(t, "error of the last one", got["the last one"], "EMFILE")
		if err := got["raise the limit"]; err != "EPERM" {
			t.Errorf("raise the limit: result = %s, want EPERM", err)
		}
	}},
	{"CountedByUser", "a sandbox that takes all it gets of what the kernel counts by user leaves enough for another", func(t *testing.T, f *fixture) { f.hoard(t) }},
	{"SocketBuffers", "what sockets hold unread is limited, where memory is limited for a sandbox", func(t *testing.T, f *fixture) {
		if f.factory.MemoryByProcess {
			t.Skip("nothing limits it without cgroups: see SECURITY.md")
		}
		r := f.run(t, f.attacker, sandbox.Command{Path: "./probe", Args: []string{"buffers"}, Timeout: testkit.Timeout / 2})
		got := results(r.Stdout)
		if n, err := strconv.ParseInt(got["bytes"], 10, 64); r.Reason != schemas.ReasonOOM && (err != nil || n > attackerMemory/2) {
			t.Errorf("sockets hold %q bytes (exit %+v, stderr %s), want at most half of the memory limit of %d", got["bytes"], r.Exit, r.Stderr, attackerMemory)
		}
		f.wantAlive(t, f.attacker)
	}},
	{"UnreadOutput", "output that is not read blocks only its own process", func(t *testing.T, f *fixture) { f.floodUnread(t) }},
	{"Zombies", "any number of orphans is reaped", func(t *testing.T, f *fixture) { f.makeZombies(t, 300) }},
	{"Tmp", "memory file systems limit bytes and files", func(t *testing.T, f *fixture) {
		for _, dir := range []string{"/tmp", "/dev/shm"} {
			if r := f.sh(t, "head -c 40000000 /dev/zero >"+dir+"/fill; rc=$?; rm "+dir+"/fill; exit $rc"); r.Code == 0 {
				t.Errorf("write 40 MB to %s with a limit of 16 MiB: exit code 0, want an error", dir)
			}
		}
		f.wantAlive(t, f.attacker)
	}},
	{"LargeFile", "no file grows beyond the workspace's limit", func(t *testing.T, f *fixture) {
		if r := f.sh(t, "head -c 80000000 /dev/zero >large"); r.Code == 0 {
			t.Error("write 80 MB to a workspace of 64 MiB: exit code 0, want an error")
		}
		testkit.Must(t, os.Remove(filepath.Join(f.workspace, "large")))
		f.wantAlive(t, f.attacker)
	}},
	{"UnlinkedFiles", "open files without a name count for the workspace's limit", func(t *testing.T, f *fixture) {
		r := f.run(t, f.attacker, sandbox.Command{Path: "sh", Args: []string{"-c",
			`for i in 1 2; do exec 3>f; head -c 45000000 /dev/zero >&3; rm f; [ $i = 2 ] || exec 4>&3; done; sleep 300`}, Timeout: testkit.Timeout / 2})
		testkit.Equal(t, "exit reason", r.Reason, schemas.ReasonKilled)
		testkit.WantCode(t, r.Limit, schemas.CodeLimitExceeded)
		f.wantAlive(t, f.attacker)
	}},
	{"Memory", "a process above the memory limit is killed, and its exit reports the reason", func(t *testing.T, f *fixture) {
		f.wantMemoryLimit(t)
		f.wantAlive(t, f.attacker)
	}},
	{"SmallMemoryBombs", "many processes that use up the memory together are killed before a supervisor that has more than each", func(t *testing.T, f *fixture) {
		f.floodUnread(t) // gives the supervisor as much
		f.run(t, f.attacker, sandbox.Command{Path: "sh", Timeout: testkit.Timeout / 2,
			Args: []string{"-c", `i=0; while [ $i -lt 28 ]; do { head -c 12000000 /dev/zero; sleep 3; } | tail -c 13000000 >/dev/null & i=$((i+1)); done; wait`}})
		f.wantAlive(t, f.attacker)
	}},
}

// busyLoops is how many loops BusyLoops runs at once.
const busyLoops = 360

// Attacks that load the machine.
var loadAttacks = []attack{
	{"ForkBomb", "the bomb ends with its timeout, and its sandbox survives", func(t *testing.T, f *fixture) {
		if f.wantPIDLimit(t); t.Failed() {
			t.Fatal("attack not run: the limit is not enforced")
		}
		r := f.run(t, f.attacker, sandbox.Command{Path: "./probe", Args: []string{"bomb"}, Env: map[string]string{"DEPTH": "10"}, Timeout: 2 * time.Second})
		testkit.Equal(t, "exit reason", r.Reason, schemas.ReasonTimedOut)
		f.wantAlive(t, f.attacker)
	}},
	{"Starvation", "processes that demote the supervisor and use all CPU end with their timeout, and with their sandbox", func(t *testing.T, f *fixture) {
		starve := sandbox.Command{Path: "./probe", Args: []string{"starve"}, Env: map[string]string{"COUNT": strconv.Itoa(pidLimit - 20)}}
		timed := starve
		timed.Timeout = 3 * time.Second
		began := time.Now()
		r := f.run(t, f.attacker, timed)
		testkit.Equal(t, "exit reason", r.Reason, schemas.ReasonTimedOut)
		if took := time.Since(began); took > 20*time.Second { // 40 s on an idle machine before such calls were refused
			t.Errorf("a command with a timeout of 3 s ended after %v", took)
		}
		f.wantFewProcesses(t)
		p, err := f.start(f.attacker, starve)
		testkit.Must(t, err)
		testkit.Must(t, f.attacker.Terminate(f.ctx, 0))
		f.finish(t, p)
		<-f.attacker.Done()
		f.wantNothingRuns(t, "starve")
	}},
	{"BusyLoops", "a neighbour's commands run beside 360 busy loops, at most 10 times slower where CPU time is limited", func(t *testing.T, f *fixture) {
		busy := f.create(t, sandbox.Spec{ID: "busy", Workspace: f.workspace, Limits: sandbox.Limits{PIDs: busyLoops + 40}})
		r := f.run(t, busy, sandbox.Command{Path: "sh", Timeout: 5 * time.Second, Args: []string{"-c",
			"i=0; while [ $i -lt " + strconv.Itoa(busyLoops) + " ]; do (while :; do :; done) & i=$((i+1)); done; wait"}})
		testkit.Equal(t, "exit reason", r.Reason, schemas.ReasonTimedOut)
		testkit.Must(t, busy.Terminate(f.ctx, 0))
	}},
	{"MemoryBombs", "ten concurrent bombs end, and their sandbox survives", func(t *testing.T, f *fixture) {
		if f.wantMemoryLimit(t); t.Failed() {
			t.Fatal("attack not run: the limit is not enforced")
		}
		f.run(t, f.attacker, sandbox.Command{Path: "sh", Timeout: 20 * time.Second,
			Args: []string{"-c", `for i in 1 2 3 4 5 6 7 8 9 10; do head -c 300000000 /dev/zero | tail & done; wait`}})
		f.wantAlive(t, f.attacker)
	}},
	{"Output", "1 GiB of output is delivered in full", func(t *testing.T, f *fixture) {
		r := f.run(t, f.attacker, sandbox.Command{Path: "head", Args: []string{"-c", "1073741824", "/dev/zero"}, Timeout: testkit.Timeout / 2})
		testkit.Equal(t, "bytes of stdout", r.Exit.Stdout, int64(1<<30))
		testkit.Equal(t, "exit code", r.Code, 0)
	}},
	{"TenThousandZombies", "any number of orphans is reaped", func(t *testing.T, f *fixture) { f.makeZombies(t, 10_000) }},
	{"ManyFiles", "in a workspace with too many files, a command that adds more is ended, and later ones are not started", func(t *testing.T, f *fixture) {
		f.fillWorkspace(t, "i=0; while [ $i -lt 700 ]; do : >$1.$i || break; i=$((i+1)); done")
	}},
	{"DiskFill", "in a workspace with too many bytes the same holds, whatever the number of its files", func(t *testing.T, f *fixture) {
		f.fillWorkspace(t, "i=0; while [ $i -lt 5 ]; do head -c 16000000 /dev/zero >$1.$i || break; i=$((i+1)); done")
	}},
}

// wantNothingRuns fails the test when a process of the probe's group runs anywhere on the host.
func (f *fixture) wantNothingRuns(t *testing.T, group string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testkit.Must(t, err)
	for _, line := range lines {
		b, err := os.ReadFile(line)
		if cwd, _ := os.Readlink(filepath.Join(filepath.Dir(line), "cwd")); err == nil && string(b) == "./probe\x00"+group+"\x00" && cwd == "/workspace" {
			t.Errorf("%s still runs: %q", filepath.Dir(line), b)
		}
	}
}

// fillWorkspace runs a bounded script repeatedly until starts are refused. After the files are removed, the sandbox runs commands
// again.
func (f *fixture) fillWorkspace(t *testing.T, script string) {
	t.Helper()
	const tries = 6
	refused := 0
	for i := range tries {
		p, err := f.start(f.attacker, sandbox.Command{Path: "sh", Args: []string{"-c", script, "sh", "fill" + strconv.Itoa(i)}, Timeout: testkit.Timeout / 2})
		if errors.Is(err, schemas.ErrLimitExceeded) {
			refused++
			continue
		}
		testkit.Must(t, err)
		if r := f.finish(t, p); !errors.Is(r.Limit, schemas.ErrLimitExceeded) {
			t.Errorf("exit of a command that filled the workspace = %+v, want limit_exceeded", r.Exit)
		}
	}
	if refused == 0 {
		t.Errorf("%d commands filled the workspace and none was refused, want a refusal", tries)
	}
	found, err := filepath.Glob(filepath.Join(f.workspace, "fill*"))
	testkit.Must(t, err)
	if len(found) == 0 {
		t.Error("the workspace has no files, want those of the script")
	}
	for _, name := range found {
		testkit.Must(t, os.Remove(name))
	}
	f.wantAlive(t, f.attacker)
}

// wantPIDLimit starts a few processes more than the limit, and fails the test when all of them start.
func (f *fixture) wantPIDLimit(t *testing.T) {
	t.Helper()
	r := f.run(t, f.attacker, sandbox.Command{Path: "./probe", Args: []string{"forks"}, Env: f.tooMany(), Timeout: testkit.Timeout / 2})
	if made := countMade(r.Stdout); made == 0 || made > pidLimit+f.factory.SupervisorPIDs {
		t.Errorf("%d concurrent processes, want 1 to %d; exit %+v, stderr %s", made, pidLimit+f.factory.SupervisorPIDs, r.Exit, r.Stderr)
	}
	f.wantAlive(t, f.attacker)
}

// tooMany is a few processes more than the limit. Their number is small in case the limit is not enforced.
func (f *fixture) tooMany() map[string]string {
	const margin = 30
	return map[string]string{"COUNT": strconv.Itoa(pidLimit + f.factory.SupervisorPIDs + margin)}
}

// countMade returns how many processes the probe reports to have started; 0 without a report.
func countMade(stdout string) (made int) {
	for line := range strings.Lines(stdout) {
		if _, err := fmt.Sscanf(line, "made\t%d", &made); err == nil {
			return made
		}
	}
	return 0
}

// exhaustPIDs uses all pids, and checks that the supervisor still works.
func (f *fixture) exhaustPIDs(t *testing.T) {
	t.Helper()
	if f.wantPIDLimit(t); t.Failed() {
		t.Fatal("attack not run: the limit is not enforced")
	}
	// The supervisor of a new sandbox has few threads yet, and cannot start more once the pids are used up.
	full := f.create(t, sandbox.Spec{ID: "filled", Workspace: f.workspace, Limits: sandbox.Limits{PIDs: pidLimit}})
	defer func() { testkit.Must(t, full.Terminate(f.ctx, 0)) }()
	const writers = 3
	var others []sandbox.Process
	for range writers {
		p, err := f.start(full, sandbox.Command{Path: "yes"})
		testkit.Must(t, err)
		others = append(others, p)
	}
	holder, err := f.start(full, sandbox.Command{Path: "./probe", Args: []string{"hold"}, Env: f.tooMany(), Timeout: testkit.Timeout / 2})
	testkit.Must(t, err)
	f.readUntil(t, holder, "made\t")
	const tries = 20
	for range tries {
		p, err := f.start(full, sandbox.Command{Path: "true"})
		if err == nil {
			_, err = p.Wait(f.ctx) // it got one of the supervisor's pids
		}
		if err != nil && !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("start without a free pid: error = %v, want unavailable or none", err)
		}
	}
	if _, err := f.start(full, sandbox.Command{Path: "no-such-program"}); err == nil {
		t.Error("start a missing program: no error, want one")
	}
	var all sync.WaitGroup
	for _, p := range others {
		all.Go(func() {
			for range 50 { // more than the supervisor buffers
				out, err := p.Read(f.ctx)
				if err == nil {
					err = p.Ack(out.Stream, out.Offset+int64(len(out.Data)))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for _, p := range others {
		testkit.Must(t, p.Signal(sandbox.Signal(syscall.SIGTERM)))
		if r := f.finish(t, p); r.Signal != sandbox.Signal(syscall.SIGTERM) {
			t.Errorf("exit = %+v, want signal %d", r.Exit, syscall.SIGTERM)
		}
	}
	testkit.Must(t, holder.Kill(0))
	testkit.Equal(t, "exit reason of the probe", f.finish(t, holder).Reason, schemas.ReasonKilled)
	f.wantAlive(t, full)
}

// floodUnread runs processes that print without end and are not read, and checks that other commands still run.
func (f *fixture) floodUnread(t *testing.T) {
	t.Helper()
	const writers = 8
	var running []sandbox.Process
	cmd := sandbox.Command{Path: "sh", Args: []string{"-c", "yes >&2 & exec yes"}}
	for range writers {
		p, err := f.start(f.attacker, cmd)
		testkit.Must(t, err)
		if _, err := p.Read(f.ctx); err != nil { // the only chunk that is read before the end
			t.Fatal(err)
		}
		running = append(running, p)
	}
	f.wantAlive(t, f.attacker)
	for _, p := range running {
		testkit.Must(t, p.Kill(0))
		if r := f.finish(t, p); r.Reason != schemas.ReasonKilled || r.Exit.Stdout == 0 {
			t.Errorf("exit = %+v, want killed with some stdout", r.Exit)
		}
	}
	f.wantAlive(t, f.attacker)
}

// makeZombies makes orphans and fails the test unless all are reaped.
func (f *fixture) makeZombies(t *testing.T, count int) {
	t.Helper()
	r := f.run(t, f.attacker, sandbox.Command{Path: "./probe", Args: []string{"zombies"}, Env: map[string]string{"COUNT": strconv.Itoa(count)},
		Timeout: testkit.Timeout / 2})
	if r.Reason != schemas.ReasonExited || r.Code != 0 {
		t.Errorf("exit = %+v, want exited 0; stderr %s", r.Exit, r.Stderr)
	}
	f.wantFewProcesses(t)
}

// wantMemoryLimit runs a process that allocates a little more than its sandbox's limit.
func (f *fixture) wantMemoryLimit(t *testing.T) {
	t.Helper()
	r := f.run(t, f.attacker, sandbox.Command{Path: "sh", Args: []string{"-c", "head -c 310000000 /dev/zero | tail -c 300000000 >/dev/null; exit $?"}, Timeout: testkit.Timeout / 2})
	direct := f.run(t, f.attacker, sandbox.Command{Path: "./probe", Args: []string{"memory"}, Timeout: testkit.Timeout / 2})
	if f.factory.MemoryByProcess {
		if direct.Code == 0 {
			t.Errorf("allocate 300 MB with a limit of 256 MiB: exit = %+v, want an error", direct.Exit)
		}
		return
	}
	for _, got := range []sandboxtest.Result{r, direct} {
		if got.Reason != schemas.ReasonOOM {
			t.Errorf("exit = %+v, want reason %s; stderr %q", got.Exit, schemas.ReasonOOM, got.Stderr)
		}
	}
	other := f.sh(t, "kill -9 $$")
	testkit.Equal(t, "exit reason of a kill that is not by the OOM killer", other.Reason, schemas.ReasonKilled)
}
