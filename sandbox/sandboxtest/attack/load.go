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

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Processes that do not want to end, or do not want others to live.
var processAttacks = []attack{
	{"Stubborn", "what ignores SIGTERM, leaves its session and forks twice is gone when its process is", false, func(t *testing.T, s *scene) {
		r := s.command(t, s.box, sandbox.Command{Path: "sh", Args: []string{"-c",
			`trap '' TERM HUP INT; (setsid sh -c 'trap "" TERM; (setsid sleep 300 &) ; sleep 300' >/dev/null 2>&1 &); sleep 300`},
			Timeout: time.Second, Grace: 100 * time.Millisecond})
		if r.Reason != schemas.ReasonTimedOut {
			t.Errorf("%+v", r.Exit)
		}
		if n := s.sh(t, "ls -d /proc/[0-9]* | wc -l").stdout; len(n) > 2 {
			t.Errorf("%s processes are left", n)
		}
	}},
	{"Count", "no more processes than the limit allows", false, func(t *testing.T, s *scene) { s.pidsHold(t) }},
	{"Full", "with all processes taken, a start is refused, signals and kills work, and the sandbox lives on", false, func(t *testing.T, s *scene) { s.fill(t) }},
	{"Deaf", "output that nobody takes holds up its own process alone", false, func(t *testing.T, s *scene) { s.deafen(t) }},
	{"Zombies", "orphans are reaped however many there are", false, func(t *testing.T, s *scene) { s.zombies(t, 300) }},
	{"Tmp", "memory file systems are bounded, in bytes and in files", false, func(t *testing.T, s *scene) {
		for _, dir := range []string{"/tmp", "/dev/shm"} {
			if r := s.sh(t, "head -c 40000000 /dev/zero >"+dir+"/fill; rc=$?; rm "+dir+"/fill; exit $rc"); r.Code == 0 {
				t.Errorf("40 MB went into %s of 16 MiB", dir)
			}
		}
		s.alive(t, s.box)
	}},
	{"LargeFile", "no file grows past the workspace's limit", false, func(t *testing.T, s *scene) {
		if r := s.sh(t, "head -c 80000000 /dev/zero >large"); r.Code == 0 {
			t.Error("80 MB went into a workspace of 64 MiB")
		}
		if err := os.Remove(filepath.Join(s.workspace, "large")); err != nil {
			t.Error(err)
		}
		s.alive(t, s.box)
	}},
	{"Memory", "a process past the memory limit is ended, and its end says so", false, func(t *testing.T, s *scene) {
		s.memoryHolds(t)
		s.alive(t, s.box)
	}},
}

// What loads the machine.
var loadAttacks = []attack{
	{"ForkBomb", "the bomb ends with its timeout, its sandbox lives on", true, func(t *testing.T, s *scene) {
		if s.pidsHold(t); t.Failed() {
			t.Fatal("not tried: the limit does not hold")
		}
		r := s.command(t, s.box, sandbox.Command{Path: "./probe", Args: []string{"bomb"}, Env: map[string]string{"DEPTH": "10"}, Timeout: 2 * time.Second})
		if r.Reason != schemas.ReasonTimedOut {
			t.Errorf("%+v", r.Exit)
		}
		s.alive(t, s.box)
	}},
	{"MemoryBombs", "ten at a time end, and their sandbox lives on", true, func(t *testing.T, s *scene) {
		if s.memoryHolds(t); t.Failed() {
			t.Fatal("not tried: the limit does not hold")
		}
		s.command(t, s.box, sandbox.Command{Path: "sh", Timeout: 20 * time.Second,
			Args: []string{"-c", `for i in 1 2 3 4 5 6 7 8 9 10; do head -c 300000000 /dev/zero | tail & done; wait`}})
		s.alive(t, s.box)
	}},
	{"Output", "1 GiB of output comes whole", true, func(t *testing.T, s *scene) {
		r := s.command(t, s.box, sandbox.Command{Path: "head", Args: []string{"-c", "1073741824", "/dev/zero"}, Timeout: Patience / 2})
		if r.Exit.Stdout != 1<<30 || r.Code != 0 {
			t.Errorf("%+v", r.Exit)
		}
	}},
	{"TenThousandZombies", "orphans are reaped however many there are", true, func(t *testing.T, s *scene) { s.zombies(t, 10_000) }},
	{"ManyFiles", "a workspace with too many files takes no more: what makes it larger is ended, and in the end not started", true, func(t *testing.T, s *scene) {
		s.overfill(t, "i=0; while [ $i -lt 700 ]; do : >$1.$i || break; i=$((i+1)); done")
	}},
	{"DiskFill", "a workspace with too many bytes takes no more, whatever the number of its files", true, func(t *testing.T, s *scene) {
		s.overfill(t, "i=0; while [ $i -lt 5 ]; do head -c 16000000 /dev/zero >$1.$i || break; i=$((i+1)); done")
	}},
}

// overfill runs a script that is bounded itself, again and again, until nothing is started any more; then what it made is removed,
// and all is well again.
func (s *scene) overfill(t *testing.T, script string) {
	t.Helper()
	const tries = 6
	refused := 0
	for i := range tries {
		p, err := s.start(s.box, sandbox.Command{Path: "sh", Args: []string{"-c", script, "sh", "fill" + strconv.Itoa(i)}, Timeout: Patience / 2})
		if errors.Is(err, schemas.ErrLimitExceeded) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := s.finish(t, p, sandbox.Command{Path: "sh"}); !errors.Is(r.Limit, schemas.ErrLimitExceeded) {
			t.Errorf("a command that filled the workspace ended %+v", r.Exit)
		}
	}
	if refused == 0 {
		t.Errorf("%d commands filled the workspace more and more", tries)
	}
	found, err := filepath.Glob(filepath.Join(s.workspace, "fill*"))
	if err != nil || len(found) == 0 {
		t.Error(found, err)
	}
	for _, name := range found {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
	s.alive(t, s.box)
}

// pidsHold starts a small number of processes more than are allowed, and fails when they all start.
func (s *scene) pidsHold(t *testing.T) {
	t.Helper()
	r := s.command(t, s.box, sandbox.Command{Path: "./probe", Args: []string{"forks"}, Env: s.tooMany(), Timeout: Patience / 2})
	if made := countMade(r.stdout); made == 0 || made > pids+s.f.Spare {
		t.Errorf("%d processes at a time with a limit of %d: %+v %s", made, pids, r.Exit, r.stderr)
	}
	s.alive(t, s.box)
}

// tooMany has the probe ask for a few processes more than the limit, and no more than that: the limit may turn out not to hold.
func (s *scene) tooMany() map[string]string {
	const margin = 30
	return map[string]string{"COUNT": strconv.Itoa(pids + s.f.Spare + margin)}
}

// countMade is how many processes the probe says it made; 0 where it does not.
func countMade(stdout string) (made int) {
	for line := range strings.Lines(stdout) {
		if _, err := fmt.Sscanf(line, "made\t%d", &made); err == nil {
			return made
		}
	}
	return 0
}

// fill takes all the processes there may be, and has the supervisor work meanwhile.
func (s *scene) fill(t *testing.T) {
	t.Helper()
	if s.pidsHold(t); t.Failed() {
		t.Fatal("not tried: the limit does not hold")
	}
	// A new sandbox, whose supervisor has not had to do with much yet: what it needs from now on it cannot get any more.
	box := s.create(t, sandbox.Spec{ID: "filled", Workspace: s.workspace, Limits: sandbox.Limits{PIDs: pids}})
	defer func() {
		if err := box.Terminate(s.ctx, 0); err != nil {
			t.Error(err)
		}
	}()
	const loud = 3
	var beside []sandbox.Process
	for range loud {
		p, err := s.start(box, sandbox.Command{Path: "yes"})
		if err != nil {
			t.Fatal(err)
		}
		beside = append(beside, p)
	}
	hold := sandbox.Command{Path: "./probe", Args: []string{"hold"}, Env: s.tooMany(), Timeout: Patience / 2}
	holder, err := s.start(box, hold)
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for !strings.Contains(said, "made\t") {
		out, err := holder.Read(s.ctx)
		if err != nil {
			t.Fatalf("%q: %v", said, err)
		}
		said += string(out.Data)
	}
	const tries = 20
	for range tries {
		p, err := s.start(box, sandbox.Command{Path: "true"})
		if err == nil {
			_, err = p.Wait(s.ctx) // one of the spare ones
		}
		if err != nil && !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("start with all processes taken: %v", err)
		}
	}
	if _, err := s.start(box, sandbox.Command{Path: "no-such-program"}); err == nil {
		t.Error("a program that is not there has started")
	}
	var all sync.WaitGroup
	for _, p := range beside {
		all.Go(func() {
			for range 50 { // more than is held without being read
				out, err := p.Read(s.ctx)
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
	for _, p := range beside {
		if err := p.Signal(sandbox.Signal(syscall.SIGTERM)); err != nil {
			t.Error(err)
		}
		if r := s.finish(t, p, sandbox.Command{Path: "yes"}); r.Signal != sandbox.Signal(syscall.SIGTERM) {
			t.Errorf("%+v", r.Exit)
		}
	}
	if err := holder.Kill(0); err != nil {
		t.Error(err)
	}
	if r := s.finish(t, holder, hold); r.Reason != schemas.ReasonKilled {
		t.Errorf("%+v", r.Exit)
	}
	s.alive(t, box)
}

// deafen has processes print without end while nobody reads, and others go on beside them.
func (s *scene) deafen(t *testing.T) {
	t.Helper()
	const loud = 8
	var running []sandbox.Process
	cmd := sandbox.Command{Path: "sh", Args: []string{"-c", "yes >&2 & exec yes"}}
	for range loud {
		p, err := s.start(s.box, cmd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Read(s.ctx); err != nil { // the only piece that is taken before the end
			t.Fatal(err)
		}
		running = append(running, p)
	}
	s.alive(t, s.box)
	for _, p := range running {
		if err := p.Kill(0); err != nil {
			t.Error(err)
		}
		if r := s.finish(t, p, cmd); r.Reason != schemas.ReasonKilled || r.Stdout == 0 {
			t.Errorf("%+v", r.Exit)
		}
	}
	s.alive(t, s.box)
}

func (s *scene) zombies(t *testing.T, count int) {
	t.Helper()
	r := s.command(t, s.box, sandbox.Command{Path: "./probe", Args: []string{"zombies"}, Env: map[string]string{"COUNT": strconv.Itoa(count)},
		Timeout: Patience / 2})
	if r.Reason != schemas.ReasonExited || r.Code != 0 {
		t.Errorf("%+v %s", r.Exit, r.stderr)
	}
	if n := s.sh(t, "ls -d /proc/[0-9]* | wc -l").stdout; len(n) > 2 {
		t.Errorf("%s processes are left", n)
	}
}

// memoryHolds lets one process ask for a little more than its sandbox has.
func (s *scene) memoryHolds(t *testing.T) {
	t.Helper()
	r := s.command(t, s.box, sandbox.Command{Path: "sh", Args: []string{"-c", "head -c 310000000 /dev/zero | tail -c 300000000 >/dev/null; exit $?"}, Timeout: Patience / 2})
	direct := s.command(t, s.box, sandbox.Command{Path: "./probe", Args: []string{"memory"}, Timeout: Patience / 2})
	if s.f.MemoryByProcess {
		if direct.Code == 0 {
			t.Errorf("300 MB in a process of 256 MiB: %+v", direct.Exit)
		}
		return
	}
	for _, got := range []result{r, direct} {
		if got.Reason != schemas.ReasonOOM {
			t.Errorf("ended %+v, %q", got.Exit, got.stderr)
		}
	}
	other := s.sh(t, "kill -9 $$")
	if other.Reason != schemas.ReasonKilled {
		t.Errorf("a kill that was not for memory: %+v", other.Exit)
	}
}
