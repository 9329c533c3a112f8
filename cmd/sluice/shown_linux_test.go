package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// `sluice exec … -- seq 1 5000000` has the same sha256 as `seq` itself; the same through `logs --from 1` afterwards, by another
// process.
func TestSeqHasTheDigestOfSeqItself(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	want := seqDigest(t, 5000000)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	w, sum := digest()
	var stderr buffer
	if code := c.runTo(null, w, &stderr, execArgs("--key", "seq", "--", "seq", "1", "5000000")...); code != 0 || sum() != want {
		t.Errorf("exec: code %d, %s, want %s: %s", code, sum(), want, &stderr)
	}
	id := schemas.ProcessID(schemas.DefaultTenant, "t1", "seq")
	logs := c.spawn("logs", "--from", "1", id)
	w, sum = digest()
	if _, err := logs.stdout.WriteTo(w); err != nil {
		t.Fatal(err)
	}
	if code, _ := logs.wait(); code != 0 || sum() != want {
		t.Errorf("logs: code %d, %s, want %s", code, sum(), want)
	}
}

// uniqueSeconds is how long a sleep is told to last: an argument that no other process has.
func uniqueSeconds() string { return fmt.Sprintf("300.%09d", rand.IntN(1e9)) }

// `--timeout 1s -- bash -c 'sleep 300 & sleep 300'` ends with 124 within 3 s, with what was printed until then, and no `sleep`
// is left.
func TestATimeoutEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	c.good() // the sandbox is there: what is measured is the timeout
	arg := uniqueSeconds()
	begin := time.Now()
	got := c.exec("--timeout", "1s", "--", "bash", "-c", "echo before; sleep "+arg+" & setsid sleep "+arg+" & sleep "+arg)
	took := time.Since(begin)
	t.Logf("it took %s", took.Round(time.Millisecond))
	if limit := 10 * time.Second; took > limit {
		t.Errorf("it took %s, more than %s", took, limit)
	}
	if got.code != 124 || got.stdout != "before\n" || !strings.Contains(got.stderr, "timed out after 1") {
		t.Errorf("%+v", got)
	}
	if left := withArgument(t, arg); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	r := c.exec("--json", "--timeout", "100ms", "--", "sleep", arg).result(t)
	if r.Reason != schemas.ReasonTimedOut || r.ExitCode != 124 || r.Success {
		t.Errorf("%+v", r)
	}
	c.good()
}

// The same --key twice runs once and answers the same; the same key with another command is a conflict.
func TestTheSameKeyRunsOnce(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	run := func(key string) []string {
		return execArgs("--key", key, "--", "bash", "-c", "echo "+key+" >> runs; echo $RANDOM$RANDOM$RANDOM; exit 5")
	}
	first := c.run(run("once")...)
	if second := c.run(run("once")...); first.code != 5 || second.code != 5 || first.stdout == "" || second.stdout != first.stdout {
		t.Errorf("%+v, then %+v", first, second)
	}
	c.exec("--key", "once", "--", "true").wantError(t, schemas.CodeConflict, "key", "t1")
	c.exec("--key", "once", "--timeout", "5s", "--", "bash", "-c", "echo once >> runs; echo $RANDOM$RANDOM$RANDOM; exit 5").wantError(t, schemas.CodeConflict)

	// Eight at once: one runs, the others hear of it.
	got := make([]outcome, 8)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = c.run(run("eight")...) })
	}
	all.Wait()
	for _, g := range got {
		if g.code != 5 || g.stdout != got[0].stdout || g.stdout == "" {
			t.Errorf("%+v, another one %+v", g, got[0])
		}
	}
	if runs := c.exec("--", "sort", "runs"); runs.stdout != "eight\nonce\n" {
		t.Errorf("what ran: %q", runs.stdout)
	}
	// Conflicting ones at once: one runs, the others are refused.
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
			t.Errorf("exit code %d", code)
		}
	}
	if fights := c.exec("--", "cat", "fights"); ran != 1 || strings.Count(fights.stdout, "\n") != 1 {
		t.Errorf("%d succeeded; what ran: %q", ran, fights.stdout)
	}
}

// The client killed with SIGKILL in mid-run: the process goes on, its result and whole log can be read.
func TestTheProcessSurvivesItsClient(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	args := execArgs("--key", "k", "-n", "--", "bash", "-c", "seq 1 1000; read -r line < "+c.fifo("go")+"; seq 1001 2000; exit 9")
	x := c.spawn(args...)
	if got := x.line(); got != "1" {
		t.Fatalf("%q", got)
	}
	id := c.only()
	x.kill()
	if got := c.only(); got != id {
		t.Errorf("%s runs, not %s", got, id)
	}
	c.release("go", "on")
	var want strings.Builder
	for i := 1; i <= 2000; i++ {
		fmt.Fprintln(&want, i)
	}
	if got := c.run("logs", "-f", id); got.stdout != want.String() || got.code != 0 {
		t.Errorf("the log: code %d, %d bytes, want %d", got.code, len(got.stdout), want.Len())
	}
	if got := c.run("logs", id); got.stdout != want.String() {
		t.Errorf("the log afterwards: %d bytes, want %d", len(got.stdout), want.Len())
	}
	// The same key again is answered, not run: the fifo would hold it up.
	r := c.run(append([]string{args[0], "--json"}, args[1:]...)...).result(t)
	if r.ExitCode != 9 || r.Process != id || r.StdoutBytes != int64(want.Len()) || r.Stdout != want.String() {
		t.Errorf("%+v", r)
	}
}

// freeAddress is one that nobody listens on now. Somebody else may take it before it is used; the kernel hands out others first.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// `sluice up` killed with SIGKILL and started again: streams, records and results of before are there; a process that ran then
// goes on, for a client, a follower and a listener that waited too; one whose supervisor was killed as well is told as `lost`.
func TestUpSurvivesItsOwnDeath(t *testing.T) {
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
	if before.code != 4 {
		t.Fatalf("%+v", before)
	}
	waiting := c.spawn(execArgs("--key", "running", "-n", "--", "bash", "-c", "echo begun; read -r line < "+c.fifo("go")+"; echo $line; exit 6")...)
	if got := waiting.line(); got != "begun" {
		t.Fatalf("%q", got)
	}
	following := c.spawn("logs", "-f", c.only())
	if got := following.line(); got != "begun" {
		t.Fatalf("%q", got)
	}
	arg := uniqueSeconds()
	doomed := c.spawn("exec", "--provider", "local", "--thread", "t2", "--key", "doomed", "-n", "--", "bash", "-c", "echo $PPID; exec sleep "+arg)
	supervisor, err := strconv.Atoi(doomed.line())
	if err != nil {
		t.Fatal(err)
	}
	listening := c.spawn("events", "-f", "--json")
	for !strings.Contains(listening.line(), "process.started") {
		continue // what was before
	}
	tree := withArgument(t, arg)
	if len(tree) == 0 {
		t.Fatal("nothing sleeps")
	}
	up.kill()
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitGone(t, tree)

	up = start()
	code, rest := doomed.wait()
	if code != schemas.ExitSluiceFailed || rest != "" || !strings.Contains(doomed.stderr.String(), "sluice: lost: ") {
		t.Errorf("the client of a lost one: code %d, %q, %s", code, rest, doomed.stderr)
	}
	for {
		line := listening.line()
		if strings.Contains(line, "process.lost") {
			break
		}
	}
	listening.signal(2)
	if code, _ := listening.wait(); code != 0 {
		t.Errorf("the listener ended with %d", code)
	}
	c.release("go", "on")
	if code, rest := waiting.wait(); code != 6 || rest != "on\n" {
		t.Errorf("the waiting client: code %d, %q, %s", code, rest, waiting.stderr)
	}
	if code, rest := following.wait(); code != 0 || rest != "on\n" {
		t.Errorf("the follower: code %d, %q, %s", code, rest, following.stderr)
	}
	if after := c.exec("--key", "before", "--", "bash", "-c", "seq 1 1000; echo $RANDOM; exit 4"); after.code != 4 || after.stdout != before.stdout {
		t.Errorf("the result of before: code %d, %d bytes, want %d", after.code, len(after.stdout), len(before.stdout))
	}
	if got := c.run("logs", schemas.ProcessID("default", "t1", "before")); got.stdout != before.stdout {
		t.Errorf("the log of before: %d bytes, want %d", len(got.stdout), len(before.stdout))
	}
	if got := c.run("process", "list", "--all"); !strings.Contains(got.stdout, "lost") || !strings.Contains(got.stdout, "exited") {
		t.Errorf("%+v", got)
	}
	c.run("exec", "--provider", "local", "--thread", "t2", "--key", "doomed", "-n", "--", "bash", "-c", "echo $PPID; exec sleep "+arg).wantError(t, schemas.CodeLost)
	c.good()
	up.signal(15)
	if code, _ := up.wait(); code != 0 {
		t.Errorf("sluice up ended with %d", code)
	}
}
