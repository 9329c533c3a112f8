package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/schemas"
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
	c := newUp(t)
	const n = 32 << 20
	want, got := newDigest(), newDigest()
	in := pipeFrom(t, func(w io.Writer) error {
		block := make([]byte, 1<<20)
		for i := range n / len(block) {
			for j := range block {
				block[j] = byte(i + j*j>>7)
			}
			want.Write(block)
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	})
	c.runTo(in, got, execArgs("--", "cat")...).check(t).exits(0)
	testkit.Equal(t, "digest of the output", got.String(), want.String())
	c.good()
}

func TestClosedStandardInputIsEmpty(t *testing.T) {
	c := newUp(t)
	closed, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	_ = closed.Close()
	c.runFrom(closed, execArgs("--", "cat")...).check(t).exits(0).prints("")
	// With a closed descriptor, and with one that cannot be read, as nohup leaves it.
	for _, as := range []string{"<&-", "0>/dev/null"} {
		sh := exec.Command("bash", "-c", `exec "$@" `+as, "bash", os.Args[0])
		sh.Args = append(sh.Args, c.args(execArgs("--", "wc", "-c"))...)
		sh.Env = []string{asSluice + "=1", "PATH=" + os.Getenv("PATH")}
		out, err := sh.Output()
		testkit.Must(t, err)
		testkit.Equal(t, "bytes read with "+as, strings.TrimSpace(string(out)), "0")
	}
}

// A standard input that fails is not taken for one that has ended.
func TestFailingStandardInputIsAnError(t *testing.T) {
	c := newUp(t)
	folder, err := os.Open(t.TempDir())
	testkit.Must(t, err)
	defer folder.Close()
	c.runFrom(folder, execArgs("--", "cat")...).check(t).exits(schemas.ExitSluiceFailed).prints("").reports("read the standard input", "is a directory")
	c.good()
}

// Input that a process does not read delays neither its end nor the next command.
func TestProcessNeedNotReadItsInput(t *testing.T) {
	c := newUp(t)
	in := pipeFrom(t, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 16<<20))
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

func TestNoStdinLeavesStandardInputUnread(t *testing.T) {
	c := newUp(t)
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
	c := newUp(t)
	for _, tt := range []struct {
		name, trap string
		signal     syscall.Signal
	}{{"SIGINT", "INT", syscall.SIGINT}, {"SIGTERM", "TERM", syscall.SIGTERM}, {"SIGQUIT", "QUIT", syscall.SIGQUIT}} {
		t.Run(tt.name, func(t *testing.T) {
			x := c.spawn(execArgs("--", "bash", "-c", "n=0; trap 'n=$((n+1)); echo caught $n' "+tt.trap+"; echo ready; while [ $n = 0 ]; do sleep 0.02; done; read -r line; echo $line; exit 7")...)
			x.line()
			// To the whole group, as a terminal does: the process must not get it twice.
			testkit.Must(t, syscall.Kill(-x.cmd.Process.Pid, tt.signal))
			x.wantLine("caught 1")
			x.write("over\n")
			x.outcome().check(t).exits(7).omits("caught")
		})
	}
	// A process without a handler ends with 128+n.
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; exec sleep 300")...)
	x.line()
	x.signal(syscall.SIGINT)
	x.wantExit(130)
}

// Ten minutes 2: the first Ctrl+C is a signal, and the second one kills.
func TestSecondCtrlCKills(t *testing.T) {
	c := newUp(t)
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "trap 'echo caught' INT; echo ready; while :; do sleep 0.02; done")...)
	x.line()
	id := c.only()
	x.signal(syscall.SIGINT)
	x.wantLine("caught")
	x.signal(syscall.SIGINT)
	x.wantEnd(137, "")
	c.run("logs", id).check(t).exits(0).prints("ready\ncaught\n")
}

// What is printed before its deletion is all that there was.
func TestLogsDelete(t *testing.T) {
	c := newUp(t)
	x := c.spawn(execArgs("-n", "--", "bash", "-c", "echo one; read -r line < "+c.fifo("go")+"; echo two $line; echo three >&2")...)
	x.wantLine("one")
	id := c.only()
	c.run("logs", "--delete", id).wantError(t, schemas.CodeConflict, id, "--follow")
	c.run("logs", "--delete", "--tail", "1", id).wantError(t, schemas.CodeInvalidArgument, "--tail")
	following := c.spawn("logs", "-f", "--delete", id)
	following.wantLine("one")
	c.release("go", "and")
	following.wantEnd(0, "two and\n")
	x.wantEnd(0, "two and\n")
	c.run("logs", id).check(t).exits(0).prints("").reports("bytes 0 to 12 of stdout are missing", "bytes 0 to 6 of stderr are missing")
	c.run("process", "get", id).check(t).exits(0).printsPart("completed")
	c.run("logs", "--delete", id).check(t).exits(0).prints("")
}

func TestSignalExitsWith128PlusNumber(t *testing.T) {
	c := newUp(t)
	for sig, want := range map[string]int{"KILL": 137, "TERM": 143, "SEGV": 139, "USR1": 128 + int(syscall.SIGUSR1)} {
		c.exec("--", "bash", "-c", "ulimit -c 0; kill -"+sig+" $$").check(t).exits(want)
	}
}

func TestEnvAndDirAreTheCommands(t *testing.T) {
	c := newUp(t)
	c.env["MINE"] = "passed on"
	c.exec("--env", "A=1=2", "-e", "EMPTY=", "-e", "MINE", "--", "bash", "-c", `echo "$A,$EMPTY,$MINE,${HOME:+home}"; env | grep -c ^NOTHERE`).check(t).prints("1=2,,passed on,home\n0\n")
	c.exec("--", "mkdir", "-p", "a/b")
	c.exec("-C", "a/b", "--", "pwd").check(t).exits(0).printsMatch("/t1/a/b\n$")
	c.exec("-C", "not/there", "--", "pwd").check(t).exits(126).reports("not/there")
}

func TestExecPrintsResultAsJSON(t *testing.T) {
	c := newUp(t)
	got := c.exec("--json", "--key", "k", "--", "bash", "-c", "echo '<out>'; echo err >&2; exit 3")
	got.check(t).exits(3).printsPart(`"<out>\n"`)
	shape := decode[map[string]any](t, got.stdout)
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
	l.outcome().check(t).exits(128 + int(syscall.SIGPIPE)).reportsNothing()
	c.good()
}

// Without a worker a command is queued and its caller is notified. The next worker runs it.
func TestCommandWaitsForWorker(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up("--log-bytes", "67108864") // the server has room for the streams of both cells, also on a small disk
	// Another cell on the same server.
	c.env["SLUICE_NATS_TOKEN"] = s.token
	x := c.spawn("--nats", s.url, "--cell", "other", "exec", "--provider", "local", "--", "true")
	x.outcome().wantError(t, schemas.CodeUnavailable)
	worker := func() *spawned {
		w := newCLI(t)
		w.env["SLUICE_NATS_TOKEN"] = s.token
		p := w.spawn("--nats", s.url, "--cell", "other", "worker", "--provider", "local")
		p.awaitLine("is up")
		return p
	}
	first := worker()
	first.signal(syscall.SIGTERM)
	first.wantExit(0)
	x = c.spawn("--nats", s.url, "--cell", "other", "exec", "--provider", "local", "--", "bash", "-c", "read -r line; echo $line; exit 6")
	x.write("waited\n")
	x.awaitStderr("is queued")
	worker()
	x.wantEnd(6, "waited\n")
}

// The command that fills a workspace keeps its exit code, the limit is reported, and files can be removed.
func TestFullWorkspaceIsReported(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	full := []string{"--workspace-files", "3", "--thread", "full", "--"}
	got := c.exec(append(full, "sh", "-c", "touch 1 2 3 4; exit 7")...)
	got.check(t).exits(7).reports(string(schemas.CodeLimitExceeded)).reports("--workspace-files")
	got = c.exec(append([]string{"--json"}, append(full, "touch", "5")...)...)
	got.check(t).exits(0)
	r := got.result(t)
	testkit.Equal(t, "success", r.Success, true)
	testkit.WantCode(t, r.Error, schemas.CodeLimitExceeded)
	c.run("events", "--thread", "full").check(t).printsPart(string(schemas.TypeLimitExceeded))
	got = c.exec(append(full, "rm", "1", "2", "3")...)
	if got.check(t).exits(0); strings.Contains(got.stderr, string(schemas.CodeLimitExceeded)) {
		t.Errorf("standard error = %q, want one without %s", got.stderr, schemas.CodeLimitExceeded)
	}
	c.run("exec", "--workspace-files", "-1", "--", "true").wantError(t, schemas.CodeInvalidArgument, "negative")
}

// The first command names the image of its thread's container, and the thread keeps it.
func TestThreadKeepsItsImage(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	image := dockertest.Image(t)
	c.run("exec", "--image", image, "--thread", "t", "--", "sh", "-c", "pwd; id -u").check(t).exits(0).printsMatch("^/workspace\n")
	c.run("exec", "--image", "another:1", "--thread", "t", "--", "true").wantError(t, schemas.CodeConflict, image, "another:1", "another thread")
	c.run("exec", "--provider", "local", "--thread", "t", "--", "true").wantError(t, schemas.CodeConflict, "docker")
	c.run("exec", "--provider", "local", "--image", image, "--thread", "u", "--", "true").wantError(t, schemas.CodeInvalidArgument, "--provider docker")
	// The engine would call the registry of an image that it does not have.
	registry, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	testkit.Must(t, err)
	defer func() { _ = registry.Close() }()
	c.run("exec", "--image", registry.Addr().String()+"/x", "--thread", "v", "--", "true").wantError(t, schemas.CodePermissionDenied, registry.Addr().String()+"/*", "--allow")
	testkit.Must(t, registry.SetDeadline(time.Unix(1, 0)))
	if _, err := registry.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("accept = %v, want that nothing called the registry", err)
	}
	c.run("exec", "--image", "a b", "--", "true").wantError(t, schemas.CodeInvalidArgument, "image")
	testkit.Must(t, os.WriteFile(filepath.Join(c.data, "workspaces", "default", "t", "put"), []byte("from the host"), 0o600))
	c.run("exec", "--image", image, "--thread", "t", "--", "sh", "-c", "echo >>put && cat put").check(t).exits(0).prints("from the host\n")
}
