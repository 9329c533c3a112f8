package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The output of seq has the same SHA-256 through `exec`, and through `logs --from 1` in another process afterwards.
func TestExecAndLogsPassLargeOutputUnchanged(t *testing.T) {
	c := newUp(t)
	want, ran, read := newDigest(), newDigest(), newDigest()
	want.count(5000000)
	c.runTo(c.null(), ran, execArgs("--key", "seq", "--", "seq", "1", "5000000")...).check(t).exits(0)
	testkit.Equal(t, "digest of the output of exec", ran.String(), want.String())
	logs := c.spawn("logs", "--from", "1", schemas.ProcessID(schemas.DefaultTenant, "t1", "seq"))
	_, err := logs.stdout.WriteTo(read)
	testkit.Must(t, err)
	logs.wantExit(0)
	testkit.Equal(t, "digest of the output of logs", read.String(), want.String())
}

// uniqueSeconds is a duration for sleep: an argument that no other process has.
func uniqueSeconds() string { return fmt.Sprintf("300.%09d", rand.IntN(1e9)) }

// After --timeout, exec exits with 124, the output until then is printed, and no process of the command is left.
func TestTimeoutKillsProcessTree(t *testing.T) {
	c := newUp(t)
	c.good() // starts the sandbox: the timeout is for the command alone
	arg := uniqueSeconds()
	got := c.exec("--timeout", "3s", "--", "bash", "-c", "echo before; sleep "+arg+" & setsid sleep "+arg+" & sleep "+arg)
	got.check(t).exits(124).prints("before\n").reports("timed out after 3")
	if left := withArgument(t, arg); len(left) != 0 {
		t.Errorf("processes %v still run, want none", left)
	}
	r := c.exec("--json", "--timeout", "100ms", "--", "sleep", arg).result(t)
	testkit.Equal(t, "reason", r.Reason, schemas.ReasonTimedOut)
	testkit.Equal(t, "exit code", r.ExitCode, 124)
	testkit.Equal(t, "success", r.Success, false)
	c.good()
}

// A command that is repeated with its key runs once and returns the same result. Another command with that key is a conflict.
func TestSameKeyRunsOnce(t *testing.T) {
	c := newUp(t)
	run := func(key string) []string {
		return execArgs("--key", key, "--", "bash", "-c", "echo "+key+" >> runs; echo $RANDOM$RANDOM$RANDOM; exit 5")
	}
	first := c.run(run("once")...)
	if first.check(t).exits(5); first.stdout == "" {
		t.Error("the command printed nothing, want a random number")
	}
	c.run(run("once")...).check(t).exits(5).prints(first.stdout)
	c.exec("--key", "once", "--", "true").wantError(t, schemas.CodeConflict, "key", "t1")
	c.exec("--key", "once", "--timeout", "5s", "--", "bash", "-c", "echo once >> runs; echo $RANDOM$RANDOM$RANDOM; exit 5").wantError(t, schemas.CodeConflict)

	// Eight at once: one runs, the others get its result.
	got := make([]outcome, 8)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = c.run(run("eight")...) })
	}
	all.Wait()
	for _, g := range got {
		g.check(t).exits(5).prints(got[0].stdout)
	}
	c.exec("--", "sort", "runs").check(t).prints("eight\nonce\n")
	// Eight different commands at once with one key: one runs, the others are rejected.
	var codes [8]int
	for i := range codes {
		all.Go(func() {
			codes[i] = c.exec("--key", "fight", "--", "bash", "-c", fmt.Sprintf("echo %d >> fights", i)).code
		})
	}
	all.Wait()
	ran := 0
	for _, code := range codes {
		if code == 0 {
			ran++
		} else if code != schemas.ExitSluiceFailed {
			t.Errorf("exit code = %d, want 0 or %d", code, schemas.ExitSluiceFailed)
		}
	}
	if fights := c.exec("--", "cat", "fights"); ran != 1 || strings.Count(fights.stdout, "\n") != 1 {
		t.Errorf("%d commands succeeded and %q ran, want one", ran, fights.stdout)
	}
}

// A client is killed with SIGKILL while its command runs: the process continues, and its result and log are complete.
func TestProcessSurvivesItsClient(t *testing.T) {
	c := newUp(t)
	args := execArgs("--key", "k", "-n", "--", "bash", "-c", "seq 1 1000; read -r line < "+c.fifo("go")+"; seq 1001 2000; exit 9")
	x := c.spawn(args...)
	x.wantLine("1")
	id := c.only()
	x.kill()
	testkit.Equal(t, "process that runs", c.only(), id)
	c.release("go", "on")
	var want strings.Builder
	for i := 1; i <= 2000; i++ {
		fmt.Fprintln(&want, i)
	}
	c.run("logs", "-f", id).check(t).exits(0).prints(want.String())
	c.run("logs", id).check(t).prints(want.String())
	// The same key returns the result. A second run would wait for the fifo.
	r := c.run(append([]string{args[0], "--json"}, args[1:]...)...).result(t)
	testkit.Equal(t, "exit code", r.ExitCode, 9)
	testkit.Equal(t, "process", r.Process, id)
	testkit.Equal(t, "stdout_bytes", r.StdoutBytes, int64(want.Len()))
	testkit.Equal(t, "stdout", r.Stdout, want.String())
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", testkit.FreePort(t))
}

// `sluice up` is killed with SIGKILL and started again. Streams, records and results are there. A process that ran continues, for
// its client, a follower and a listener too. A process whose supervisor was killed as well is reported as lost.
func TestUpRecoversAfterKill(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	address := freeAddress(t)
	start := func() *spawned {
		up := c.spawn("up", "--provider", "local", "--listen", address)
		upURL(t, up.stdout)
		return up
	}
	up := start()
	before := c.exec("--key", "before", "--", "bash", "-c", "seq 1 1000; echo $RANDOM; exit 4")
	before.check(t).exits(4)
	waiting := c.spawn(execArgs("--key", "running", "-n", "--", "bash", "-c", "echo begun; read -r line < "+c.fifo("go")+"; echo $line; exit 6")...)
	waiting.wantLine("begun")
	following := c.spawn("logs", "-f", c.only())
	following.wantLine("begun")
	arg := uniqueSeconds()
	doomed := c.spawn("exec", "--provider", "local", "--thread", "t2", "--key", "doomed", "-n", "--", "bash", "-c", "echo $PPID; exec sleep "+arg)
	supervisor, err := strconv.Atoi(doomed.line())
	testkit.Must(t, err)
	listening := c.spawn("events", "-f", "--json")
	listening.awaitLine("process.started")
	tree := withArgument(t, arg)
	if len(tree) == 0 {
		t.Fatal("the sleep does not run")
	}
	up.kill()
	testkit.Must(t, syscall.Kill(supervisor, syscall.SIGKILL))
	waitGone(t, tree)

	up = start()
	doomed.outcome().check(t).prints("").exits(schemas.ExitSluiceFailed).reports("sluice: lost: ")
	listening.awaitLine("process.lost")
	listening.signal(2)
	listening.wantExit(0)
	c.release("go", "on")
	waiting.wantEnd(6, "on\n")
	following.wantEnd(0, "on\n")
	c.exec("--key", "before", "--", "bash", "-c", "seq 1 1000; echo $RANDOM; exit 4").check(t).exits(4).prints(before.stdout)
	c.run("logs", schemas.ProcessID("default", "t1", "before")).check(t).prints(before.stdout)
	c.run("process", "list", "--all").check(t).printsPart("lost").printsPart("failed")
	c.run("exec", "--provider", "local", "--thread", "t2", "--key", "doomed", "-n", "--", "bash", "-c", "echo $PPID; exec sleep "+arg).wantError(t, schemas.CodeLost)
	c.good()
	up.signal(15)
	up.wantExit(0)
}

// commandLines are the arguments of all processes, each with a zero byte after it.
func commandLines(t *testing.T) map[int][]byte {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testkit.Must(t, err)
	out := make(map[int][]byte)
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		testkit.Must(t, err)
		if line, err := os.ReadFile(f); err == nil { // otherwise it has ended
			out[pid] = line
		}
	}
	return out
}

func withArgument(t *testing.T, arg string) (pids []int) {
	t.Helper()
	for pid, line := range commandLines(t) {
		if pid != os.Getpid() && slices.Contains(strings.Split(string(line), "\x00"), arg) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func waitGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		testkit.Must(t, err)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(testkit.Timeout/time.Millisecond))
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(testkit.Timeout/time.Millisecond))
		}
		if err != nil || n == 0 {
			t.Errorf("process %d still runs: %v", pid, err)
		}
		_ = unix.Close(fd)
	}
}
