package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// openTerminal makes a terminal, and returns its two ends.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	testkit.Must(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetUint32(int(screen.Fd()), unix.TIOCGPTN)
	testkit.Must(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	testkit.Must(t, err)
	return screen, terminal
}

// inTerminal starts sluice in a terminal of its own, below a shell or as the terminal's first process. Its standard error is kept.
func (c *cli) inTerminal(shell bool, args ...string) (x *spawned, screen *os.File) {
	c.t.Helper()
	screen, terminal := openTerminal(c.t)
	defer terminal.Close()
	x = &spawned{t: c.t, stderr: &buffer{}, ended: make(chan struct{}), read: screen, stdout: bufio.NewReader(screen)}
	x.cmd = exec.Command(os.Args[0], c.args(args)...)
	if shell {
		x.cmd = exec.Command("bash", append([]string{"-c", `"$@"; exit $?`, "bash"}, x.cmd.Args...)...)
	}
	x.cmd.Env = []string{asSluice + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for k, v := range c.env {
		x.cmd.Env = append(x.cmd.Env, k+"="+v)
	}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = terminal, terminal, x.stderr
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	x.cmd.WaitDelay = testkit.Timeout
	testkit.Must(c.t, x.cmd.Start())
	go func() {
		defer close(x.ended)
		_ = x.cmd.Wait() // the exit code is checked
		x.code = x.cmd.ProcessState.ExitCode()
	}()
	c.t.Cleanup(func() {
		select {
		case <-x.ended: // its number may be another group's by now
		default:
			_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL) // it may end just now
			<-x.ended
		}
	})
	return x, screen
}

// readingLoop counts as long as its input does not end.
const readingLoop = "i=0; while :; do i=$((i+1)); echo $i; echo $i >beat.tmp; mv beat.tmp beat; read -t 0.02 x; [ $? = 1 ] && exit; done"

// Ten minutes 2: a terminal that closes ends neither the command nor its input.
func TestCommandOutlivesItsTerminal(t *testing.T) {
	for _, v := range []struct {
		name      string
		up, shell bool
	}{{"server", true, false}, {"server below a shell", true, true}, {"no server", false, false}, {"no server below a shell", false, true}} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t)
			if v.up {
				c.up()
			}
			id := schemas.ProcessID(schemas.DefaultTenant, "t1", loopKey)
			x, screen := c.inTerminal(v.shell, execArgs("--key", loopKey, "--", "bash", "-c", readingLoop)...)
			for i := range 5 {
				testkit.Equal(t, "line", strings.TrimSpace(x.line()), fmt.Sprint(i+1))
			}
			testkit.Must(t, screen.Close())
			x.awaitStderr("sluice logs -f " + id)
			if v.up {
				<-x.ended
			}
			if v.up && !v.shell {
				testkit.Equal(t, "exit code", x.code, schemas.ExitSignalBase+int(syscall.SIGHUP))
			}
			l := &loop{cli: c, id: id}
			l.wantRunning("exec in a terminal that closed")
			l.client = c.spawn("logs", "-f", id)
			l.catchUp()
			l.wantNumbers(20)
			l.end()
			l.client.wantExit(0)
			x.awaitStderr("") // until its pipe is closed: without a server, the command ends when its process does
			<-x.ended
		})
	}
}

// Ten minutes 2: a reader ends with its terminal, and not at another SIGHUP.
func TestReaderEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	c.exec("--", "echo", "on").check(t).exits(0)
	x, screen := c.inTerminal(false, "events", "-f")
	x.awaitLine("process.exited")
	x.signal(syscall.SIGHUP)
	c.exec("--", "echo", "again").check(t).exits(0)
	x.awaitLine("echo again")
	testkit.Must(t, screen.Close())
	<-x.ended
}

// Ten minutes 2: `nohup` keeps the client too.
func TestNohupKeepsTheClient(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	screen, terminal := openTerminal(t)
	defer terminal.Close()
	fifo := c.fifo("go")
	sh := exec.Command("nohup", append([]string{os.Args[0]}, c.args(execArgs("-n", "--", "sh", "-c", "echo ready; read -r line <"+fifo+"; echo $line; exit 7"))...)...)
	sh.Env = []string{asSluice + "=1", "PATH=" + os.Getenv("PATH")}
	out := &buffer{}
	sh.Stdin, sh.Stdout, sh.SysProcAttr = terminal, out, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testkit.Must(t, sh.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = sh.Wait() // the exit code is checked
	}()
	if !out.await("ready", ended) {
		t.Fatal("the command did not start")
	}
	testkit.Must(t, screen.Close())
	testkit.Must(t, sh.Process.Signal(syscall.SIGHUP))
	c.release("go", "over")
	<-ended
	testkit.Equal(t, "exit code", sh.ProcessState.ExitCode(), 7)
	testkit.Equal(t, "output", out.String(), "ready\nover\n")
}

// Ten minutes 2: a third Ctrl+C exits at once, also when the worker does not answer. The process continues.
func TestThirdCtrlCExits(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	up := c.spawn("up", "--listen", freeAddress(t), "--provider", "local")
	upURL(t, up.stdout)
	l := c.startLoop("--provider", "local")
	up.freeze()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} { // those of one kind could become one
		l.client.signal(sig)
	}
	got := l.client.outcome()
	got.check(t).reports("continues", "sluice logs -f "+l.id)
	if got.code <= schemas.ExitSignalBase {
		t.Errorf("exit code = %d, want 128 plus the number of a signal", got.code)
	}
	up.kill()
	l.wantRunning("exec")
}
