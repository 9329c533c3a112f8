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

	"github.com/sluice-dev/sluice/internal/testkit"
)

// The first command of the README.
func TestOutputAndExitCodePassThrough(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	got := c.exec("--", "bash", "-c", "echo out; echo err >&2; exit 3")
	got.check(t).exits(3).prints("out\n").reports("isolates nothing", "\nerr\n")
}

// pipeFrom is a standard input that write fills.
func pipeFrom(t *testing.T, write func(w io.Writer) error) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_ = write(w) // the reader checks what came through
		_ = w.Close()
	}()
	t.Cleanup(func() {
		_ = r.Close() // ends a write that nothing reads
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
		t.Errorf("exit code %d with digest %s, want 0 with %s; standard error: %s", code, sum(), want, &stderr)
	}
	c.good()
}

func TestClosedStandardInputIsEmpty(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	closed, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	_ = closed.Close()
	c.runFrom(closed, execArgs("--", "cat")...).check(t).exits(0).prints("")
	// With a closed descriptor, as <&- leaves it.
	sh := exec.Command("bash", "-c", `exec "$@" <&-`, "bash", os.Args[0])
	sh.Args = append(sh.Args, c.args(execArgs("--", "wc", "-c"))...)
	sh.Env = []string{asSluice + "=1", "PATH=" + os.Getenv("PATH")}
	out, err := sh.Output()
	testkit.Must(t, err)
	testkit.Equal(t, "bytes read", strings.TrimSpace(string(out)), "0")
}

// Input that a process does not read delays neither its end nor the next command.
func TestProcessNeedNotReadItsInput(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	in := pipeFrom(t, func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(zeros{}, 16<<20))
		return err
	})
	c.runFrom(in, execArgs("--", "bash", "-c", "head -c 3 | wc -c; exit 2")...).check(t).exits(2).printsMatch(`^\s*3\n$`)
	// An input that never ends and is never read.
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	c.runFrom(r, execArgs("--", "true")...).check(t).exits(0)
	_ = w.Close()
	_ = r.Close()
	c.good()
}

// zeros is an endless input of zero bytes.
type zeros struct{}

// Read fills p with zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestNoStdinLeavesStandardInputUnread(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	in := pipeFrom(t, func(w io.Writer) error {
		_, err := io.WriteString(w, "for the next one\n")
		return err
	})
	c.runFrom(in, execArgs("-n", "--", "cat")...).check(t).exits(0).prints("")
	left, err := io.ReadAll(in)
	testkit.Must(t, err)
	testkit.Equal(t, "standard input left", string(left), "for the next one\n")
}

// A signal is forwarded once, to the process, whose exit code is the exit code.
func TestSignalIsForwardedOnce(t *testing.T) {
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
			// To the whole group, as a terminal does: the process must not get it twice.
			testkit.Must(t, syscall.Kill(-x.cmd.Process.Pid, tt.signal))
			x.wantLine("caught 1")
			if _, err := io.WriteString(x.stdin, "over\n"); err != nil {
				t.Error(err)
			}
			code, out := x.wait()
			outcome{code, out, x.stderr.String()}.check(t).exits(7).omits("caught")
		})
	}
	// A process without a handler ends with 128+n.
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; exec sleep 300")...)
	x.line()
	x.signal(syscall.SIGINT)
	x.wantExit(130)
}

// A second Ctrl+C exits at once: the process continues.
func TestSecondCtrlCExits(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "trap 'echo caught' INT; echo ready; read -r line < "+c.fifo("go")+"; read -r line < "+c.fifo("again")+"; echo $line")...)
	x.line()
	id := c.only()
	x.signal(syscall.SIGINT)
	x.wantLine("caught")
	x.signal(syscall.SIGINT)
	x.wantExit(130)
	outcome{stderr: x.stderr.String()}.check(t).reports("continues", "sluice logs -f "+id)
	if got := c.only(); got != id {
		t.Errorf("process %s runs, want %s", got, id)
	}
	c.run("process", "kill", "--grace", "0s", id).check(t).exits(0)
	c.run("logs", "-f", id).check(t).exits(0).prints("ready\ncaught\n")
}

func TestSignalExitsWith128PlusNumber(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	for sig, want := range map[string]int{"KILL": 137, "TERM": 143, "SEGV": 139, "USR1": 128 + int(syscall.SIGUSR1)} {
		c.exec("--", "bash", "-c", "ulimit -c 0; kill -"+sig+" $$").check(t).exits(want)
	}
}

func TestEnvAndDirAreTheCommands(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	c.env["MINE"] = "passed on"
	c.exec("--env", "A=1=2", "-e", "EMPTY=", "-e", "MINE", "--", "bash", "-c", `echo "$A,$EMPTY,$MINE,${HOME:+home}"; env | grep -c ^NOTHERE`).check(t).prints("1=2,,passed on,home\n0\n")
	c.exec("--", "mkdir", "-p", "a/b")
	c.exec("-C", "a/b", "--", "pwd").check(t).exits(0).printsMatch("/t1/a/b\n$")
	c.exec("-C", "not/there", "--", "pwd").check(t).exits(126).reports("not/there")
}

func TestExecPrintsResultAsJSON(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	got := c.exec("--json", "--key", "k", "--", "bash", "-c", "echo '<out>'; echo err >&2; exit 3")
	got.check(t).exits(3).printsPart(`"<out>\n"`)
	var shape map[string]any
	testkit.Must(t, json.Unmarshal([]byte(got.stdout), &shape))
	for _, field := range []string{"process", "thread", "success", "exit_code", "reason", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "log", "command", "args", "timestamp", "duration_ms"} {
		if _, ok := shape[field]; !ok {
			t.Errorf("field %s is missing in %s", field, got.stdout)
		}
	}
	r := got.result(t)
	testkit.Equal(t, "process", r.Process, schemas.ProcessID("default", "t1", "k"))
	testkit.Equal(t, "success", r.Success, false)
	testkit.Equal(t, "reason", r.Reason, schemas.ReasonExited)
	testkit.Equal(t, "stderr", r.Stderr, "err\n")
	testkit.Equal(t, "stdout_bytes", r.StdoutBytes, int64(6))
	if age := time.Since(r.Timestamp); age > time.Hour {
		t.Errorf("timestamp is %s old, want at most an hour", age)
	}
}

// `| head -1` ends the process as in a pipe, and the exec with it. Other commands on the data folder continue.
func TestReaderThatLeavesEndsProcess(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, hosted := range []bool{false, true} {
		if hosted {
			c.up()
		}
		x := c.spawn(execArgs("-n", "--key", "head"+unique(), "--", "bash", "-c", "yes; echo $? >&2")...)
		x.line()
		x.leave()
		x.wantExit(128 + int(syscall.SIGPIPE))
		c.run("process", "list").check(t).reports("no process runs")
	}
	// A reader of the log that leaves ends nothing else.
	c.exec("--key", "log", "--", "seq", "1", "200000")
	l := c.spawn("logs", schemas.ProcessID("default", "t1", "log"))
	l.line()
	l.leave()
	if code, _ := l.wait(); code != 128+int(syscall.SIGPIPE) || l.stderr.String() != "" {
		t.Errorf("logs: exit code %d, want %d and no message: %s", code, 128+int(syscall.SIGPIPE), l.stderr)
	}
	c.good()
}

// Without a worker a command is queued and its caller is notified. The next worker runs it.
func TestCommandWaitsForWorker(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	// Another cell on the same server.
	c.env["SLUICE_NATS_TOKEN"] = s.token
	x := c.spawn("--nats", s.url, "--cell", "other", "exec", "--provider", "local", "--", "true")
	if code, _ := x.wait(); code != schemas.ExitSluiceFailed || !strings.Contains(x.stderr.String(), "sluice: unavailable: ") {
		t.Errorf("exec in a cell without streams: exit code %d, want %d and unavailable: %s", code, schemas.ExitSluiceFailed, x.stderr)
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
	first.wantExit(0)
	x = c.spawn("--nats", s.url, "--cell", "other", "exec", "--provider", "local", "--", "bash", "-c", "read -r line; echo $line; exit 6")
	if _, err := io.WriteString(x.stdin, "waited\n"); err != nil {
		t.Fatal(err)
	}
	x.awaitStderr("is queued")
	worker()
	x.wantEnd(6, "waited\n")
}
