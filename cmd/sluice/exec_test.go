package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// The README's first command.
func TestOutputAndExitCodePassThrough(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	got := c.exec("--", "bash", "-c", "echo out; echo err >&2; exit 3")
	if got.code != 3 || got.stdout != "out\n" || !strings.HasSuffix(got.stderr, "\nerr\n") || !strings.Contains(got.stderr, "isolates nothing") {
		t.Errorf("%+v", got)
	}
}

// pipeFrom is a standard input that a function writes.
func pipeFrom(t *testing.T, write func(w io.Writer) error) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_ = write(w) // what did not come through shows at the other end
		_ = w.Close()
	}()
	t.Cleanup(func() {
		_ = r.Close() // ends a writer whose reader read no more
		<-wrote
	})
	return r
}

func TestStandardInputPassesThrough(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	const n = 32 << 20
	h := sha256.New()
	in := pipeFrom(t, func(w io.Writer) error {
		block := make([]byte, 1<<20)
		for i := range n / len(block) {
			for j := range block {
				block[j] = byte(i + j*j>>7)
			}
			h.Write(block)
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	})
	out, sum := digest()
	var stderr buffer
	code := c.runTo(in, out, &stderr, execArgs("--", "cat")...)
	if want := hex.EncodeToString(h.Sum(nil)); code != 0 || sum() != want {
		t.Errorf("code %d, %s, want %s: %s", code, sum(), want, &stderr)
	}
	c.good()
}

func TestAClosedStandardInputIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if got := c.runFrom(closed, execArgs("--", "cat")...); got.code != 0 || got.stdout != "" {
		t.Errorf("%+v", got)
	}
	// With the descriptor itself closed, as <&- does.
	sh := exec.Command("bash", "-c", `exec "$@" <&-`, "bash", os.Args[0])
	sh.Args = append(sh.Args, c.args(execArgs("--", "wc", "-c"))...)
	sh.Env = []string{asSluice + "=1", "PATH=" + os.Getenv("PATH")}
	if out, err := sh.Output(); err != nil || strings.TrimSpace(string(out)) != "0" {
		t.Errorf("%q, %v", out, err)
	}
}

// What a process leaves unread holds up neither its end nor the next command.
func TestAProcessNeedNotReadItsInput(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	in := pipeFrom(t, func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(zeros{}, 16<<20))
		return err
	})
	if got := c.runFrom(in, execArgs("--", "bash", "-c", "head -c 3 | wc -c; exit 2")...); got.code != 2 || strings.TrimSpace(got.stdout) != "3" {
		t.Errorf("%+v", got)
	}
	// An input that never ends, and that nobody reads.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if got := c.runFrom(r, execArgs("--", "true")...); got.code != 0 {
		t.Errorf("%+v", got)
	}
	_ = w.Close()
	_ = r.Close()
	c.good()
}

// zeros is an endless input.
type zeros struct{}

// Read fills p with zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestNoStandardInputIsReadWhereNoneIsWanted(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	in := pipeFrom(t, func(w io.Writer) error {
		_, err := io.WriteString(w, "for the next one\n")
		return err
	})
	if got := c.runFrom(in, execArgs("-n", "--", "cat")...); got.code != 0 || got.stdout != "" {
		t.Errorf("%+v", got)
	}
	if left, err := io.ReadAll(in); err != nil || string(left) != "for the next one\n" {
		t.Errorf("%q is left, %v", left, err)
	}
}

// Ctrl+C is passed on once, as SIGINT to the process, whose exit code is the answer.
func TestCtrlCGoesToTheProcess(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	for _, tt := range []struct {
		name, trap string
		signal     syscall.Signal
	}{{"SIGINT", "INT", syscall.SIGINT}, {"SIGTERM", "TERM", syscall.SIGTERM}, {"SIGHUP", "HUP", syscall.SIGHUP}} {
		t.Run(tt.name, func(t *testing.T) {
			x := c.spawn(execArgs("--", "bash", "-c", "n=0; trap 'n=$((n+1)); echo caught $n' "+tt.trap+"; echo ready; read -r line; echo $line; exit 7")...)
			x.line()
			// To the whole group, as a terminal does: the process must not hear of it twice.
			if err := syscall.Kill(-x.cmd.Process.Pid, tt.signal); err != nil {
				t.Fatal(err)
			}
			if got := x.line(); got != "caught 1" {
				t.Errorf("%q", got)
			}
			if _, err := io.WriteString(x.stdin, "over\n"); err != nil {
				t.Error(err)
			}
			if code, out := x.wait(); code != 7 || strings.Contains(out, "caught") {
				t.Errorf("code %d, %q", code, out)
			}
		})
	}
	// One that catches nothing ends of it, by 128+n.
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; exec sleep 300")...)
	x.line()
	x.signal(syscall.SIGINT)
	if code, _ := x.wait(); code != 130 {
		t.Errorf("code %d", code)
	}
}

// The second one leaves at once: the process goes on.
func TestASecondCtrlCLeaves(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "trap 'echo caught' INT; echo ready; read -r line < "+c.fifo("go")+"; read -r line < "+c.fifo("again")+"; echo $line")...)
	x.line()
	id := c.only()
	x.signal(syscall.SIGINT)
	if got := x.line(); got != "caught" {
		t.Fatalf("%q", got)
	}
	x.signal(syscall.SIGINT)
	if code, _ := x.wait(); code != 130 {
		t.Errorf("code %d", code)
	}
	if text := x.stderr.String(); !strings.Contains(text, "goes on") || !strings.Contains(text, "sluice logs -f "+id) {
		t.Errorf("it does not say how to come back: %s", text)
	}
	if got := c.only(); got != id {
		t.Errorf("%s runs, not %s", got, id)
	}
	if got := c.run("process", "kill", "--grace", "0s", id); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := c.run("logs", "-f", id); got.code != 0 || got.stdout != "ready\ncaught\n" {
		t.Errorf("%+v", got)
	}
}

func TestASignalsExitCodeIs128AndItsNumber(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	for sig, want := range map[string]int{"KILL": 137, "TERM": 143, "SEGV": 139, "USR1": 128 + int(syscall.SIGUSR1)} {
		if got := c.exec("--", "bash", "-c", "ulimit -c 0; kill -"+sig+" $$"); got.code != want {
			t.Errorf("%s: %+v", sig, got)
		}
	}
}

func TestTheEnvironmentAndTheFolderAreTheCommands(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	c.env["MINE"] = "passed on"
	if got := c.exec("--env", "A=1=2", "-e", "EMPTY=", "-e", "MINE", "--", "bash", "-c", `echo "$A,$EMPTY,$MINE,${HOME:+home}"; env | grep -c ^NOTHERE`); got.stdout != "1=2,,passed on,home\n0\n" {
		t.Errorf("%+v", got)
	}
	c.exec("--", "mkdir", "-p", "a/b")
	if got := c.exec("-C", "a/b", "--", "pwd"); got.code != 0 || !strings.HasSuffix(got.stdout, "/t1/a/b\n") {
		t.Errorf("%+v", got)
	}
	if got := c.exec("-C", "not/there", "--", "pwd"); got.code != 126 || !strings.Contains(got.stderr, "not/there") {
		t.Errorf("%+v", got)
	}
}

func TestTheResultAsJSON(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	got := c.exec("--json", "--key", "k", "--", "bash", "-c", "echo '<out>'; echo err >&2; exit 3")
	if got.code != 3 || !strings.Contains(got.stdout, `"<out>\n"`) {
		t.Errorf("%+v", got)
	}
	var shape map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &shape); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"process", "thread", "success", "exit_code", "reason", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "log", "command", "args", "timestamp", "duration_ms"} {
		if _, ok := shape[field]; !ok {
			t.Errorf("%s is missing", field)
		}
	}
	r := got.result(t)
	if r.Process != schemas.ProcessID("default", "t1", "k") || r.Success || r.Reason != schemas.ReasonExited || r.Stderr != "err\n" || r.StdoutBytes != 6 || time.Since(r.Timestamp) > time.Hour {
		t.Errorf("%+v", r)
	}
}

// `| head -1` ends the process as it would behind a pipe, and with it the exec; what it shares a data folder with goes on.
func TestAReaderThatLeavesEndsTheProcess(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, hosted := range []bool{false, true} {
		if hosted {
			c.up()
		}
		x := c.spawn(execArgs("-n", "--key", "head"+unique(), "--", "bash", "-c", "yes; echo $? >&2")...)
		x.line()
		x.leave()
		if code, _ := x.wait(); code != 128+int(syscall.SIGPIPE) {
			t.Errorf("code %d: %s", code, x.stderr)
		}
		if got := c.run("process", "list"); !strings.Contains(got.stderr, "nothing runs") {
			t.Errorf("%+v", got)
		}
	}
	// A reader of the log that leaves takes nothing along.
	c.exec("--key", "log", "--", "seq", "1", "200000")
	l := c.spawn("logs", schemas.ProcessID("default", "t1", "log"))
	l.line()
	l.leave()
	if code, _ := l.wait(); code != 128+int(syscall.SIGPIPE) || l.stderr.String() != "" {
		t.Errorf("logs: code %d: %s", code, l.stderr)
	}
	c.good()
}

// With no worker a command waits in the queue, and its caller is told; a worker that comes runs it.
func TestACommandWaitsForAWorker(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	// Of another cell there are streams, but no worker any more.
	c.env["SLUICE_NATS_TOKEN"] = s.token
	x := c.spawn("--nats", s.url, "--cell", "other", "exec", "--provider", "local", "--", "true")
	if code, _ := x.wait(); code != schemas.ExitSluiceFailed || !strings.Contains(x.stderr.String(), "sluice: unavailable: ") {
		t.Errorf("a cell that was never set up: code %d, %s", code, x.stderr)
	}
	worker := func() *spawned {
		w := newCLI(t)
		w.env["SLUICE_NATS_TOKEN"] = s.token
		p := w.spawn("--nats", s.url, "--cell", "other", "worker", "--provider", "local")
		if line := p.line(); !strings.Contains(line, "is up") {
			t.Fatalf("%q", line)
		}
		return p
	}
	first := worker()
	first.signal(syscall.SIGTERM)
	if code, _ := first.wait(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	x = c.spawn("--nats", s.url, "--cell", "other", "exec", "--provider", "local", "--", "bash", "-c", "read -r line; echo $line; exit 6")
	if _, err := io.WriteString(x.stdin, "waited\n"); err != nil {
		t.Fatal(err)
	}
	x.awaitStderr("is queued")
	worker()
	if code, out := x.wait(); code != 6 || out != "waited\n" {
		t.Errorf("code %d, %q", code, out)
	}
}
