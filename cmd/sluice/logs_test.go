package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// chunks reads what `logs --json` has printed.
func chunks(t *testing.T, text string) []chunkLine {
	t.Helper()
	var out []chunkLine
	for line := range strings.Lines(text) {
		var k chunkLine
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		out = append(out, k)
	}
	return out
}

// `logs -f --from SEQ` joins late and resumes without loss or repetition: a follower that is killed after each few chunks and comes
// back where it was reads the same as one that never went.
func TestAFollowerResumesWhereItWas(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	fifo := c.fifo("go")
	x := c.spawn(execArgs("-n", "--", "bash", "-c",
		"for i in $(seq 40); do echo out $i; echo err $i >&2; sleep 0.01; done; read -r line < "+fifo+"; for i in $(seq 41 80); do echo out $i; done; printf 'no newline'")...)
	for range 40 {
		x.line()
	}
	id := c.only()
	var got strings.Builder
	next := uint64(1)
	joins := 0
	for ended := false; !ended; joins++ {
		if joins == 3 {
			c.release("go", "on")
		}
		f := c.spawn("logs", "-f", "--json", "--from", strconv.FormatUint(next, 10), id)
		for range 10 {
			line, err := f.stdout.ReadString('\n')
			if err != nil {
				if code, _ := f.wait(); code != 0 {
					t.Fatalf("the follower ended with %d: %s", code, f.stderr)
				}
				ended = true
				break
			}
			k := chunks(t, line)[0]
			if k.Seq < next {
				t.Fatalf("sequence %d came again", k.Seq)
			}
			next = k.Seq + 1
			if k.Stream == schemas.Stdout {
				got.WriteString(k.Data)
			}
			if strings.HasSuffix(k.Data, "out 40\n") && joins < 3 {
				break // what comes next waits for the fifo
			}
		}
		if !ended {
			f.kill()
		}
	}
	if joins < 4 {
		t.Errorf("it joined %d times", joins)
	}
	var want strings.Builder
	for i := 1; i <= 80; i++ {
		fmt.Fprintln(&want, "out", i)
	}
	want.WriteString("no newline")
	if got.String() != want.String() {
		t.Errorf("%q, want %q", got.String(), want.String())
	}
	// Both streams, each to where it belongs.
	plain := c.run("logs", "--thread", "t1", id)
	if plain.stdout != want.String() || strings.Count(plain.stderr, "err ") != 40 {
		t.Errorf("%+v", plain)
	}
	if late := c.run("logs", "-f", "--from", strconv.FormatUint(next, 10), id); late.code != 0 || late.stdout != "" {
		t.Errorf("past the end: %+v", late)
	}
}

func TestEventsTellWhatHappened(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
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
			var ev schemas.Event
			if err := json.Unmarshal([]byte(line), &ev); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			if ev.Seq <= last || ev.SpecVersion != schemas.EventSpecVersion || ev.Thread != "t1" || ev.ID == "" || ev.Source == "" {
				t.Errorf("%+v after sequence %d", ev, last)
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
	if code, _ := follower.wait(); code != 0 {
		t.Errorf("Ctrl+C ended it with %d: %s", code, follower.stderr)
	}
	scan := bufio.NewScanner(strings.NewReader(c.run("events", "--json", "--thread", "t1").stdout))
	stored := read(func() (string, bool) {
		ok := scan.Scan()
		return scan.Text(), ok
	})
	if !slices.Equal(live, stored) {
		t.Errorf("live %v, stored %v", live, stored)
	}
	if len(live) < 4 || live[0] != string(schemas.TypeSessionCreated) {
		t.Errorf("live: %v", live)
	}
	text := c.run("events", "--process", id)
	for _, word := range []string{"process.accepted", "process.started", "exited, exit code 3", "bash -c exit 3"} {
		if !strings.Contains(text.stdout, word) {
			t.Errorf("%q is not in %s", word, text.stdout)
		}
	}
	if got := c.run("events", "--thread", "t2"); got.stdout != "" || got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func TestProcessesAreListedAndKilled(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	if got := c.run("process", "list", "--json"); strings.TrimSpace(got.stdout) != "[]" {
		t.Errorf("%+v", got)
	}
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "trap 'echo hup' HUP; trap 'echo term; exit 8' TERM; echo ready; while :; do read -r line < "+c.fifo("go")+"; done")...)
	x.line()
	id := c.only()
	if got := c.run("process", "kill", "--signal", "HUP", id); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := x.line(); got != "hup" {
		t.Errorf("%q", got)
	}
	c.run("process", "kill", "--signal", "NOSUCH", id).wantError(t, schemas.CodeInvalidArgument, "NOSUCH")
	if got := c.run("process", "kill", id); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if code, out := x.wait(); code != 8 || out != "term\n" {
		t.Errorf("code %d, %q", code, out)
	}
	c.run("process", "kill", id).wantError(t, schemas.CodeNotFound, id)
	var list []client.ProcessInfo
	if err := json.Unmarshal([]byte(c.run("process", "list", "--all", "--json").stdout), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v: %+v", err, list)
	}
	if p := list[0]; p.ID != id || p.Thread != "t1" || p.ExitCode == nil || *p.ExitCode != 8 || p.Ended == nil || p.Command != "bash" || p.State != "exited" {
		t.Errorf("%+v", p)
	}
}
