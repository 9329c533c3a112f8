package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// tmux is a terminal that interprets what programs print, as a user's does.
type tmux struct {
	t      *testing.T
	socket string
}

func (x *tmux) run(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket, "-f", os.DevNull}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (x *tmux) press(keys ...string) {
	x.t.Helper()
	x.run(append([]string{"send-keys"}, keys...)...)
}

// await waits until the screen shows a text.
func (x *tmux) await(text string) {
	x.t.Helper()
	late := time.After(testkit.Timeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		shown := x.run("capture-pane", "-p")
		if strings.Contains(shown, text) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			x.t.Fatalf("the screen shows\n%s\nwant %q", shown, text)
		}
	}
}

// A shell in tmux: its size, Ctrl+C, a full-screen program, Ctrl+D, and the exit code.
func TestShellInTmux(t *testing.T) {
	for _, program := range []string{"tmux", "less"} {
		if _, err := exec.LookPath(program); err != nil {
			testkit.Missing(t, program, "apt-get install "+program)
		}
	}
	c := newUp(t)
	x := &tmux{t, filepath.Join(testkit.ShortDir(t), "s")}
	line := fmt.Sprintf("%s=1 %s --data %s exec -it --provider local --thread t1 -- bash --norc; echo left with $?; exec sleep 300", asSluice, os.Args[0], c.data)
	x.run("new-session", "-d", "-x", "90", "-y", "20", line)
	defer func() { _ = exec.Command("tmux", "-S", x.socket, "kill-server").Run() }() // it may have ended
	x.press("PS1='ready$ '; stty size", "Enter")
	x.await("20 90")
	x.run("resize-window", "-x", "120", "-y", "31")
	x.press("clear; until [ \"$(stty size)\" = '31 120' ]; do sleep 0.05; done; echo re''sized", "Enter")
	x.await("resized")
	x.press("clear; echo wait''ing; sleep 300", "Enter")
	x.await("waiting")
	x.press("C-c")
	x.press("echo code $?", "Enter")
	x.await("code 130")
	x.press("seq 1000 | less", "Enter")
	x.await("30\n:") // a screenful and the prompt of less
	x.press("G")
	x.await("1000")
	x.run("resize-window", "-x", "120", "-y", "12")
	x.await("981\n:") // less draws again, from the same first line
	x.press("q")
	x.press("clear; echo le''ft", "Enter")
	x.await("left")
	x.press("clear; PS1='do''ne$ '; (exit 6)", "Enter")
	x.await("done$") // until then, the terminal and not the shell reads Ctrl+D
	x.press("C-d")
	x.await("left with 6")
}
