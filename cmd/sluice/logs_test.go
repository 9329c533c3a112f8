package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// `logs -f --from SEQ` resumes without loss or repetition: a follower that is killed after every few chunks, and started again from
// the next sequence, reads the whole log.
func TestFollowerResumesFromSequence(t *testing.T) {
	c := newUp(t)
	fifo := c.fifo("go")
	x := c.spawn(execArgs("-n", "--", "bash", "-c",
		"for i in $(seq 80); do echo out $i; echo err $i >&2; sleep 0.01; [ $((i%20)) -gt 0 ] || read -r line < "+fifo+"; done; printf 'no newline'")...)
	x.line()
	id := c.only()
	var got strings.Builder
	next := uint64(1)
	for _, last := range []string{"out 20\n", "out 40\n", "out 60\n", "out 80\n", ""} { // what comes next waits for the fifo
		f := c.spawn("logs", "-f", "--json", "--from", strconv.FormatUint(next, 10), id)
		for last == "" || !strings.HasSuffix(got.String(), last) {
			line, err := f.stdout.ReadString('\n')
			if err != nil {
				testkit.Equal(t, "output before the follower ends", last, "")
				f.wantExit(0)
				break
			}
			k := decode[chunkLine](t, line)
			if k.Seq < next {
				t.Fatalf("sequence %d came twice, want %d or later", k.Seq, next)
			}
			next = k.Seq + 1
			if k.Stream == schemas.Stdout {
				got.WriteString(k.Data)
			}
		}
		if last != "" {
			f.kill()
			c.release("go", "on")
		}
	}
	var want strings.Builder
	for i := 1; i <= 80; i++ {
		fmt.Fprintln(&want, "out", i)
	}
	want.WriteString("no newline")
	testkit.Equal(t, "log", got.String(), want.String())
	// Each stream goes to its own file descriptor.
	plain := c.run("logs", "--thread", "t1", id)
	plain.check(t).prints(want.String())
	testkit.Equal(t, "lines of standard error", strings.Count(plain.stderr, "err "), 80)
	c.run("logs", "-f", "--from", strconv.FormatUint(next, 10), id).check(t).exits(0).prints("")
}

func TestEventsListWhatHappened(t *testing.T) {
	c := newUp(t)
	follower := c.spawn("events", "-f", "--json", "--thread", "t1")
	c.exec("--key", "k", "--", "bash", "-c", "exit 3")
	id := schemas.ProcessID("default", "t1", "k")
	read := func(next func() (string, bool)) (types []string) {
		var last uint64
		for {
			line, ok := next()
			if !ok {
				return types
			}
			ev := decode[schemas.Event](t, line)
			if ev.Seq <= last {
				t.Errorf("event %s has sequence %d after %d", ev.Type, ev.Seq, last)
			}
			testkit.Equal(t, "specversion", ev.SpecVersion, schemas.EventSpecVersion)
			testkit.Equal(t, "thread", ev.Thread, "t1")
			if ev.ID == "" || ev.Source == "" {
				t.Errorf("event %s has id %q and source %q, want both", ev.Type, ev.ID, ev.Source)
			}
			last = ev.Seq
			types = append(types, string(ev.Type))
			if ev.Type == schemas.TypeProcessExited {
				return types
			}
		}
	}
	live := read(func() (string, bool) { return follower.line(), true })
	follower.signal(syscall.SIGINT)
	follower.wantExit(0)
	scan := bufio.NewScanner(strings.NewReader(c.run("events", "--json", "--thread", "t1").stdout))
	stored := read(func() (string, bool) {
		ok := scan.Scan()
		return scan.Text(), ok
	})
	testkit.Equal(t, "live events against stored ones", live, stored)
	if len(live) < 4 || live[0] != string(schemas.TypeSessionCreated) {
		t.Errorf("live events = %v, want at least 4 with %s first", live, schemas.TypeSessionCreated)
	}
	c.run("events", "--process", id).check(t).printsPart("process.accepted", "process.started", "exited, exit code 3", "bash -c exit 3")
	c.run("events", "--thread", "t2").check(t).exits(0).prints("")
}

func TestProcessesAreListedAndKilled(t *testing.T) {
	c := newUp(t)
	c.run("process", "list", "--json").check(t).prints("[]\n")
	c.run("ps", "--json").check(t).prints("[]\n")
	c.run("ps").check(t).exits(0).prints("").reports("no process runs", "process list --all")
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "trap 'echo hup' HUP; trap 'echo term; exit 8' TERM; echo ready; while :; do read -r line < "+c.fifo("go")+"; done")...)
	x.line()
	id := c.only()
	c.run("ps").check(t).exits(0).printsMatch(`(?m)^PROCESS +THREAD +STATUS +AGE +COMMAND$`).printsMatch("(?m)^" + id + ` +t1 +running +\d+s +bash -c `)
	c.run("ps", "--thread", "t2", "--json").check(t).prints("[]\n")
	c.run("process", "kill", "--signal", "HUP", id).check(t).exits(0)
	x.wantLine("hup")
	c.run("process", "kill", "--signal", "NOSUCH", id).wantError(t, schemas.CodeInvalidArgument, "NOSUCH")
	c.run("process", "kill", id).check(t).exits(0)
	x.wantEnd(8, "term\n")
	c.run("process", "kill", id).wantError(t, schemas.CodeNotFound, id)
	list := decode[[]schemas.ProcessInfo](t, c.run("process", "list", "--all", "--json").stdout)
	if len(list) != 1 {
		t.Fatalf("process list --all has %d processes, want 1", len(list))
	}
	p, exit := list[0], 8
	testkit.Equal(t, "process, thread, command and status", []string{p.Process, p.Thread, p.Command, string(p.Status)}, []string{id, "t1", "bash", "failed"})
	testkit.Equal(t, "exit code", p.ExitCode, &exit)
	if p.Ended.IsZero() {
		t.Error("the process has no end")
	}
}
