package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/schemas"
)

// ordinaryUser is the user and group id of an account without rights.
const ordinaryUser = 54321

// `sluice up` is killed with SIGKILL at random moments and started again: 2 times, or 50 with SLUICE_LONG. Every process ends with
// its own exit code and all its output, none runs twice, and nothing is left behind.
func TestEveryProcessSurvivesItsWorker(t *testing.T) {
	for _, v := range []struct {
		name  string
		flags func(t *testing.T, c *cli) []string
	}{
		{"local", func(*testing.T, *cli) []string { return []string{"--provider", "local"} }},
		{"jail", jailFlags},
		{"jail as an ordinary user", func(t *testing.T, c *cli) []string {
			if os.Geteuid() != 0 {
				t.Skip("running as another user needs root: sudo -E go test -run TestEveryProcess ./cmd/sluice")
			}
			c.runAs(ordinaryUser)
			return jailFlags(t, c)
		}},
		{"docker", func(t *testing.T, _ *cli) []string {
			return []string{"--provider", "docker", "--image", dockertest.Image(t), "--pool", "0"}
		}},
		{"pool", func(t *testing.T, _ *cli) []string {
			return []string{"--provider", "docker", "--image", dockertest.Image(t), "--pool", "1"}
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t)
			flags := v.flags(t, c)
			s := &survival{cli: c, up: append([]string{"up", "--listen", freeAddress(t)}, flags...), pids: make(map[int]bool)}
			s.run(long(50, 2))
		})
	}
}

func jailFlags(t *testing.T, _ *cli) []string {
	if _, err := jail.Check(testkit.ShortDir(t)); err != nil {
		testkit.Missing(t, "provider jail", err.Error())
	}
	return []string{"--provider", "jail"}
}

// runAs makes spawn run as another user, with a copy of this program that the user can execute.
func (c *cli) runAs(id uint32) {
	c.t.Helper()
	program, err := os.ReadFile(os.Args[0])
	testkit.Must(c.t, err)
	c.bin = filepath.Join(c.data, "sluice")
	testkit.WriteProgram(c.t, c.bin, program)
	testkit.Must(c.t, os.Chown(c.data, int(id), int(id)))
	c.as = &syscall.Credential{Uid: id, Gid: id}
}

// survival is a `sluice up` that is killed again and again.
type survival struct {
	*cli
	up   []string
	pids map[int]bool // of all supervisors seen
}

// victim is a process that must survive the kill.
type victim struct {
	key, script string
	code        int
	want        string // the SHA-256 of its output

	client  *spawned
	started chan struct{} // closed with its first output
	done    chan struct{}
	sum     string
}

func (s *survival) run(rounds int) {
	s.t.Helper()
	up := s.spawn(s.up...)
	upURL(s.t, up.stdout)
	var runs []string
	for round := range rounds {
		victims := s.victims(round)
		for _, v := range victims {
			s.begin(v)
			runs = append(runs, v.key)
		}
		for _, v := range victims {
			select {
			case <-v.started:
			case <-v.done:
				if v.sum != v.want { // a brief one may have ended
					s.t.Fatalf("round %d: %s ended with exit code %d and digest %s, want %s: %s", round, v.key, v.client.code, v.sum, v.want, v.client.stderr)
				}
			case <-time.After(testkit.Timeout):
				s.t.Fatalf("round %d: %s did not start within %s", round, v.key, testkit.Timeout)
			}
		}
		s.findSupervisors()
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond) // the kill comes at a random moment
		up.kill()
		up = s.spawn(s.up...)
		upURL(s.t, up.stdout)
		s.findSupervisors()
		for _, v := range victims {
			s.survived(round, v)
		}
		if s.t.Failed() {
			s.t.Logf("sluice up: %s", up.stderr)
			break
		}
	}
	s.ranOnce(runs)
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
	s.nothingLeft()
}

// victims returns a process that prints more at once than is buffered without a worker, one that prints a little for a while, and one
// that prints nothing after the worker was killed.
func (s *survival) victims(round int) []*victim {
	const lines, bursts, burst = 700_000, 40, 500
	brief, flood, slow := newDigest(), newDigest(), newDigest()
	for _, d := range []digest{brief, flood, slow} {
		fmt.Fprintln(d, "on")
	}
	flood.count(lines)
	for range bursts {
		slow.count(burst)
	}
	name := func(kind string) string { return fmt.Sprintf("%s-%d", kind, round) }
	return []*victim{
		{key: name("flood"), script: fmt.Sprintf("echo on; sleep 0.1; seq 1 %d; exit %d", lines, 1+round%100), code: 1 + round%100, want: flood.String()},
		{key: name("slow"), script: fmt.Sprintf("echo on; i=0; while [ $i -lt %d ]; do seq 1 %d; sleep 0.02; i=$((i+1)); done; kill -9 $$", bursts, burst), code: 137, want: slow.String()},
		{key: name("brief"), script: "echo on; sleep 0.2; exit 5", code: 5, want: brief.String()},
	}
}

func (s *survival) begin(v *victim) {
	v.client = s.spawn("exec", "--thread", "t1", "-n", "--key", v.key, "--", "sh", "-c", "echo "+v.key+" >>runs; "+v.script)
	v.started, v.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(v.done)
		h := newDigest()
		if first, err := v.client.stdout.ReadString('\n'); err == nil {
			_, _ = io.WriteString(h, first)
			close(v.started)
		}
		_, _ = io.Copy(h, v.client.stdout) // the bytes before an error are checked
		v.sum = h.String()
	}()
}

func (s *survival) survived(round int, v *victim) {
	s.t.Helper()
	select {
	case <-v.done:
	case <-time.After(testkit.Timeout):
		s.t.Fatalf("round %d: %s did not end within %s", round, v.key, testkit.Timeout)
	}
	<-v.client.ended
	if v.client.code != v.code || v.sum != v.want {
		s.t.Errorf("round %d: %s: exit code = %d, want %d; digest = %s, want %s; standard error: %s", round, v.key, v.client.code, v.code, v.sum, v.want, v.client.stderr)
	}
	logs := s.spawn("logs", schemas.ProcessID(schemas.DefaultTenant, "t1", v.key))
	sum := newDigest()
	if _, err := io.Copy(sum, logs.stdout); err != nil || sum.String() != v.want {
		s.t.Errorf("round %d: digest of the log of %s = %s, want %s (error: %v)", round, v.key, sum, v.want, err)
	}
	logs.wantExit(0)
}

// ranOnce checks the file that each process writes to when it starts.
func (s *survival) ranOnce(want []string) {
	s.t.Helper()
	got, err := os.ReadFile(filepath.Join(s.data, "workspaces", schemas.DefaultTenant, "t1", "runs"))
	testkit.Must(s.t, err)
	times := make(map[string]int)
	for line := range strings.Lines(string(got)) {
		times[strings.TrimSpace(line)]++
	}
	for _, key := range want {
		if times[key] != 1 {
			s.t.Errorf("%s ran %d times, want once", key, times[key])
		}
	}
}

// findSupervisors remembers the supervisors that run.
func (s *survival) findSupervisors() {
	s.t.Helper()
	for _, r := range s.records() {
		if r.PID > 0 {
			s.pids[r.PID] = true
		}
	}
}

// nothingLeft checks that no process, container, mount, cgroup, socket or file of a sandbox is left.
func (s *survival) nothingLeft() {
	s.t.Helper()
	waitGone(s.t, slices.Collect(maps.Keys(s.pids)))
	testkit.Equal(s.t, "records left", s.recordFiles(), []string(nil))
	for _, pattern := range []string{"run/*.sock", "run/j/*.sock", "run/docker/*.sock", "run/docker/*.ask", "workspaces/.pool/*"} {
		if left, err := filepath.Glob(filepath.Join(s.data, pattern)); err != nil || len(left) != 0 {
			s.t.Errorf("files %v are left (error: %v), want none", left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), s.data) {
		s.t.Errorf("a mount of %s is left (error: %v)", s.data, err)
	}
	sum := sha256.Sum256([]byte(filepath.Join(s.data, "run", "j")))
	for _, pattern := range []string{"/sys/fs/cgroup/%s", "/sys/fs/cgroup/*/%s"} {
		if left, err := filepath.Glob(fmt.Sprintf(pattern, "sluice-"+hex.EncodeToString(sum[:6]))); err != nil || len(left) != 0 {
			s.t.Errorf("cgroups %v are left (error: %v), want none", left, err)
		}
	}
	if strings.Contains(strings.Join(s.up, " "), "docker") {
		// Another test binary may have a worker of this name.
		folder, err := os.ReadFile(filepath.Join(s.data, "run", "docker", "name"))
		testkit.Must(s.t, err)
		left, err := exec.Command("docker", "ps", "-aq", "--filter", "label=dev.sluice.folder="+string(folder)).CombinedOutput()
		if err != nil || len(left) != 0 {
			s.t.Errorf("containers %s are left (error: %v), want none", left, err)
		}
	}
	for pid, args := range commandLines(s.t) {
		if bytes.Contains(args, []byte(s.data)) {
			s.t.Errorf("process %d is left: %q", pid, args)
		}
	}
}
