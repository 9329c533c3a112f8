package processor_test

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// inTerminal is a script that runs in a terminal of 30 rows and 100 columns.
func inTerminal(script string) schemas.Exec {
	e := sh(script)
	e.TTY, e.Rows, e.Cols, e.StdinOpen = true, 30, 100, true
	return e
}

func (r *rig) resize(process string, rows, cols int64) error {
	return r.control(process, schemas.Control{Resize: &schemas.TerminalSize{Rows: rows, Cols: cols}})
}

// A terminal's output is stored as stdout, its record says that it has one, and its size follows.
func TestTerminal(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", inTerminal(`stty size; trap 'stty size; exit 3' WINCH; echo ready >&2; while :; do sleep 0.02; done`))
	call := c.start(cmd, "30 100", "ready")
	c.must(w.resize(processOf(cmd), 41, 132))
	wantFields(t, c.end(call), schemas.Result{ExitCode: 3, Stdout: "30 100\r\nready\r\n41 132\r\n"})
	var a schemas.Accepted
	c.must(c.awaitType(processOf(cmd), schemas.TypeProcessAccepted).Decode(&a))
	equal(t, "tty of the record", a.TTY, true)
	testkit.WantCode(t, w.resize(processOf(cmd), 1, 1), schemas.CodeNotFound)
}

func TestResizeWithoutTerminalIsRefused(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", sh("echo on; sleep 300"))
	call := c.start(cmd, "on")
	testkit.WantCode(t, w.resize(processOf(cmd), 1, 1), schemas.CodeInvalidArgument)
	c.must(w.control(processOf(cmd), schemas.Control{Kill: &schemas.KillRequest{}}))
	c.end(call)
}

func TestCommandWithInvalidTerminalIsRefused(t *testing.T) {
	for path, edit := range map[string]func(*schemas.Exec){
		"exec.rows":     func(e *schemas.Exec) { e.Rows = 65535 },
		"exec.cols":     func(e *schemas.Exec) { e.Cols = -1 },
		"exec.env.TERM": func(e *schemas.Exec) { e.Env = map[string]string{"TERM": "../../x"} },
	} {
		e := inTerminal("true")
		edit(&e)
		err := command("k", e).Validate()
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		equal(t, "path", schemas.AsError(err).Details["path"], path)
	}
	e := sh("true")
	e.Rows = 24
	testkit.WantCode(t, command("k", e).Validate(), schemas.CodeInvalidArgument)
}

// Several writers have offsets of their own, and a piece that is sent again arrives once.
func TestWritersHaveTheirOwnOffsets(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", inTerminal("stty -echo; echo on; cat"))
	call := c.start(cmd, "on")
	write := func(writer string, offset int64, data string, end bool) error {
		return w.control(processOf(cmd), schemas.Control{Stdin: &schemas.StdinPiece{Writer: writer, Offset: offset, Data: []byte(data), End: end}})
	}
	c.must(write("a", 0, "one\n", false))
	c.must(write("b", 0, "two\n", false))
	c.must(write("a", 0, "one\n", false))
	c.must(write("a", 4, "three\n", false))
	c.must(write("b", 2, "o\nfour\n", false))
	c.must(write("", 0, "five\n", false))
	testkit.WantCode(t, write("b", 100, "x", false), schemas.CodeInvalidArgument)
	c.must(write("a", 10, "", true))
	r := c.end(call)
	equal(t, "stdout", r.Stdout, "on\r\none\r\ntwo\r\nthree\r\nfour\r\nfive\r\n")
}

func TestWriterOfAProcessWithoutTerminalIsRefused(t *testing.T) {
	c, w := newRig(t)
	e := sh("cat")
	e.StdinOpen = true
	cmd := command("k", e)
	call := c.start(cmd)
	write := func(p schemas.StdinPiece) error { return w.control(processOf(cmd), schemas.Control{Stdin: &p}) }
	testkit.WantCode(t, write(schemas.StdinPiece{Writer: "a", Data: []byte("x")}), schemas.CodeInvalidArgument)
	c.must(write(schemas.StdinPiece{Data: []byte("on"), End: true}))
	wantFields(t, c.end(call), schemas.Result{Success: true, Stdout: "on"})
}

// A key that was typed and not answered when the worker was killed is not typed again.
func TestKeyWithoutAnswerIsTypedOnce(t *testing.T) {
	c, dead := newRig(t, hasty)
	cmd := command("k", inTerminal(`stty -echo; echo on; cat`))
	call := c.start(cmd, "on")
	process := processOf(cmd)
	c.awaitType(process, schemas.TypeProcessStarted)
	write := func(r *rig, offset int64, data string, end bool) error {
		return r.control(process, schemas.Control{Stdin: &schemas.StdinPiece{Writer: "a", Offset: offset, Data: []byte(data), End: end}})
	}
	c.must(write(dead, 0, "one\n", false))
	c.must(write(dead, 4, "two\n", false))
	c.output(process, "two")
	dead.crash()

	w := dead.again()
	c.must(write(w, 4, "two\n", false))
	c.must(write(w, 8, "three\n", true))
	equal(t, "stdout", c.end(call).Stdout, "on\r\none\r\ntwo\r\nthree\r\n")
}

// An open terminal goes on after its worker was killed: its output, its size and its writers.
func TestTerminalResumesAfterItsWorkerWasKilled(t *testing.T) {
	c, dead := newRig(t, hasty)
	cmd := command("k", inTerminal(`stty -echo; trap 'stty size' WINCH; echo on; while :; do read l && echo got $l && [ "$l" = end ] && exit 4; done`))
	call := c.start(cmd, "on")
	process := processOf(cmd)
	c.awaitType(process, schemas.TypeProcessStarted)
	write := func(r *rig, writer string, offset int64, data string) error {
		return r.control(process, schemas.Control{Stdin: &schemas.StdinPiece{Writer: writer, Offset: offset, Data: []byte(data)}})
	}
	c.must(write(dead, "a", 0, "one\n"))
	c.must(write(dead, "b", 0, "from-b\n"))
	c.output(process, "got from-b")
	dead.crash()

	w := dead.again()
	c.must(write(w, "b", 7, "again\n")) // each goes on where it was
	c.output(process, "got again")
	c.must(w.resize(process, 41, 132))
	c.output(process, "41 132")
	c.must(write(w, "a", 4, "end\n"))
	r := c.end(call)
	equal(t, "exit code", r.ExitCode, 4)
	for _, line := range []string{"got one", "got from-b", "got again", "got end"} {
		equal(t, line, strings.Count(r.Stdout, line), 1)
	}
}
