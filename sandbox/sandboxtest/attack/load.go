package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
		r := s.command(t, s.box, sandbox.Command{Path: "sh", Args: []string{"-c", `b() { b | b & }; b; sleep 300`}, Timeout: 2 * time.Second})
		if r.Reason != schemas.ReasonTimedOut && r.Reason != schemas.ReasonExited && r.Reason != schemas.ReasonKilled {
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
	{"ManyFiles", "a workspace with too many files starts no more commands until some are gone", true, func(t *testing.T, s *scene) {
		s.sh(t, `i=0; while [ $i -lt 600 ]; do : >f$i || break; i=$((i+1)); done; true`)
		_, err := s.box.Start(s.ctx, sandbox.Command{ID: "more", Path: "true"})
		if !errors.Is(err, schemas.ErrLimitExceeded) {
			t.Errorf("start in a full workspace: %v", err)
		}
	}},
}

// pidsHold starts a small number of processes more than are allowed, and fails when they all start.
func (s *scene) pidsHold(t *testing.T) {
	t.Helper()
	const allowed, margin = 100, 60
	r := s.command(t, s.box, sandbox.Command{Path: "./probe", Args: []string{"forks"}, Env: map[string]string{"COUNT": strconv.Itoa(allowed + margin)},
		Timeout: Patience / 2})
	made := 0
	for line := range strings.Lines(r.stdout) {
		if _, err := fmt.Sscanf(line, "made\t%d", &made); err == nil {
			break
		}
	}
	if made == 0 || made >= allowed+margin {
		t.Errorf("%d processes at a time with a limit of %d: %+v %s", made, allowed, r.Exit, r.stderr)
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
