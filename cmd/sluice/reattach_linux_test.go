package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/schemas"
)

// ordinary is the user and group id of nobody in particular.
const ordinary = 54321

// `sluice up` is killed with SIGKILL in mid-run and started again, as often as SLUICE_LONG makes it: every process ends with its
// true exit code and all its output, none runs twice, and nothing is left behind.
func TestEveryProcessSurvivesItsWorker(t *testing.T) {
	rounds := 2
	if os.Getenv("SLUICE_LONG") != "" {
		rounds = 50
	}
	for _, v := range []struct {
		name  string
		flags func(t *testing.T, c *cli) []string
	}{
		{"local", func(*testing.T, *cli) []string { return []string{"--provider", "local"} }},
		{"jail", jailFlags},
		{"jail as an ordinary user", func(t *testing.T, c *cli) []string {
			if os.Geteuid() != 0 {
				t.Skip("becoming an ordinary user needs root")
			}
			c.become(ordinary)
			return jailFlags(t, c)
		}},
		{"docker", func(t *testing.T, _ *cli) []string {
			return []string{"--provider", "docker", "--image", dockertest.Image(t)}
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
			s.run(rounds)
		})
	}
}

func jailFlags(t *testing.T, _ *cli) []string {
	if _, err := jail.Check(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return []string{"--provider", "jail"}
}

// become has everything that is spawned run as another user, with a copy of this program that it can reach.
func (c *cli) become(id uint32) {
	c.t.Helper()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		c.t.Fatal(err)
	}
	c.bin = filepath.Join(c.data, "sluice")
	if err := os.WriteFile(c.bin, program, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Chown(c.data, int(id), int(id)); err != nil {
		c.t.Fatal(err)
	}
	c.as = &syscall.Credential{Uid: id, Gid: id}
}

// survival is one `sluice up` that is killed again and again.
type survival struct {
	*cli
	up   []string
	pids map[int]bool // of all supervisors there were
}

// victim is a process that is to survive.
type victim struct {
	key, script string
	code        int
	want        string // its output's sha256

	client *spawned
	begun  chan struct{} // closed with its first output
	done   chan struct{}
	sum    string
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
			case <-v.begun:
			case <-v.done:
				if v.sum != v.want { // a brief one may have ended by now
					s.t.Fatalf("round %d: %s ended with %d: %s", round, v.key, v.client.code, v.client.stderr)
				}
			case <-time.After(patience):
				s.t.Fatalf("round %d: %s did not begin", round, v.key)
			}
		}
		s.look()
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond) // at any moment is what is tried
		up.kill()
		up = s.spawn(s.up...)
		upURL(s.t, up.stdout)
		s.look()
		for _, v := range victims {
			s.survived(round, v)
		}
		if s.t.Failed() {
			s.t.Logf("sluice up: %s", up.stderr)
			break
		}
	}
	s.ranOnce(runs)
	worker := s.worker()
	up.signal(syscall.SIGTERM)
	if code, _ := up.wait(); code != 0 {
		s.t.Errorf("sluice up ended with %d: %s", code, up.stderr)
	}
	s.nothingLeft(worker)
}

// victims print a lot at once, more than is held without a worker; a little for a while; and nothing more once the worker is gone.
func (s *survival) victims(round int) []*victim {
	const lines, bursts, burst = 700_000, 40, 500
	flood, slow := sha256.New(), sha256.New()
	fmt.Fprintln(flood, "on")
	fmt.Fprintln(slow, "on")
	for i := range lines {
		fmt.Fprintln(flood, i+1)
	}
	for range bursts {
		for i := range burst {
			fmt.Fprintln(slow, i+1)
		}
	}
	name := func(kind string) string { return fmt.Sprintf("%s-%d", kind, round) }
	brief := sha256.Sum256([]byte("on\n"))
	return []*victim{
		{key: name("flood"), script: fmt.Sprintf("echo on; sleep 0.1; seq 1 %d; exit %d", lines, 1+round%100), code: 1 + round%100, want: hex.EncodeToString(flood.Sum(nil))},
		{key: name("slow"), script: fmt.Sprintf("echo on; i=0; while [ $i -lt %d ]; do seq 1 %d; sleep 0.02; i=$((i+1)); done; kill -9 $$", bursts, burst), code: 137, want: hex.EncodeToString(slow.Sum(nil))},
		{key: name("brief"), script: "echo on; sleep 0.2; exit 5", code: 5, want: hex.EncodeToString(brief[:])},
	}
}

// begin has a victim run, and reads its output as it comes.
func (s *survival) begin(v *victim) {
	v.client = s.spawn("exec", "--thread", "t1", "-n", "--key", v.key, "--", "sh", "-c", "echo "+v.key+" >>runs; "+v.script)
	v.begun, v.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(v.done)
		h := sha256.New()
		if first, err := v.client.stdout.ReadString('\n'); err == nil {
			_, _ = io.WriteString(h, first)
			close(v.begun)
		}
		_, _ = io.Copy(h, v.client.stdout) // what was read before an error is looked at
		v.sum = hex.EncodeToString(h.Sum(nil))
	}()
}

func (s *survival) survived(round int, v *victim) {
	s.t.Helper()
	select {
	case <-v.done:
	case <-time.After(2 * patience):
		s.t.Fatalf("round %d: %s does not end", round, v.key)
	}
	<-v.client.ended
	if v.client.code != v.code || v.sum != v.want {
		s.t.Errorf("round %d: %s ended with %d, want %d, its output has %s, want %s: %s", round, v.key, v.client.code, v.code, v.sum, v.want, v.client.stderr)
	}
	logs := s.spawn("logs", schemas.ProcessID(schemas.DefaultTenant, "t1", v.key))
	h := sha256.New()
	_, err := io.Copy(h, logs.stdout)
	if sum := hex.EncodeToString(h.Sum(nil)); err != nil || sum != v.want {
		s.t.Errorf("round %d: the log of %s has %s, want %s: %v", round, v.key, sum, v.want, err)
	}
	if code, _ := logs.wait(); code != 0 {
		s.t.Errorf("logs: %d: %s", code, logs.stderr)
	}
}

// ranOnce looks at what the processes themselves wrote down.
func (s *survival) ranOnce(want []string) {
	s.t.Helper()
	got, err := os.ReadFile(filepath.Join(s.data, "workspaces", schemas.DefaultTenant, "t1", "runs"))
	if err != nil {
		s.t.Fatal(err)
	}
	times := make(map[string]int)
	for line := range strings.Lines(string(got)) {
		times[strings.TrimSpace(line)]++
	}
	for _, key := range want {
		if times[key] != 1 {
			s.t.Errorf("%s ran %d times", key, times[key])
		}
	}
}

// kept are the files that tell of sandboxes.
func (s *survival) kept() []string {
	s.t.Helper()
	var all []string
	for _, dir := range []string{"run", "run/j", "run/docker"} {
		files, err := filepath.Glob(filepath.Join(s.data, dir, "kept", "*"))
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

// look notes which supervisors there are.
func (s *survival) look() {
	s.t.Helper()
	for _, path := range s.kept() {
		var r struct {
			PID int `json:"pid"`
		}
		body, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(body, &r) == nil && r.PID > 0 {
			s.pids[r.PID] = true
		}
	}
}

func (s *survival) worker() string {
	s.t.Helper()
	id, err := os.ReadFile(filepath.Join(s.data, "worker-id"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

// nothingLeft fails where any process, container, mount, cgroup, socket or file of a sandbox is there.
func (s *survival) nothingLeft(worker string) {
	s.t.Helper()
	for pid := range s.pids {
		waitGone(s.t, []int{pid})
	}
	if left := s.kept(); len(left) != 0 {
		s.t.Errorf("left: %v", left)
	}
	for _, pattern := range []string{"run/*.sock", "run/j/*.sock", "run/docker/*.sock", "run/docker/*.ask", "workspaces/.pool/*"} {
		if left, err := filepath.Glob(filepath.Join(s.data, pattern)); err != nil || len(left) != 0 {
			s.t.Errorf("left: %v, %v", left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), s.data) {
		s.t.Errorf("a mount is left: %v", err)
	}
	sum := sha256.Sum256([]byte(filepath.Join(s.data, "run", "j")))
	for _, pattern := range []string{"/sys/fs/cgroup/%s", "/sys/fs/cgroup/*/%s"} {
		if left, err := filepath.Glob(fmt.Sprintf(pattern, "sluice-"+hex.EncodeToString(sum[:6]))); err != nil || len(left) != 0 {
			s.t.Errorf("a cgroup is left: %v, %v", left, err)
		}
	}
	if strings.Contains(strings.Join(s.up, " "), "docker") {
		left, err := exec.Command("docker", "ps", "-aq", "--filter", "label=dev.sluice.worker="+worker).CombinedOutput()
		if err != nil || len(left) != 0 {
			s.t.Errorf("containers left: %s, %v", left, err)
		}
	}
	var procs sync.WaitGroup
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		procs.Go(func() {
			if line, err := os.ReadFile(f); err == nil && strings.Contains(string(line), s.data) {
				s.t.Errorf("a process is left: %q", line)
			}
		})
	}
	procs.Wait()
}
