package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// smallDisk mounts a small file system as the data folder.
func (c *cli) smallDisk(size string) {
	c.t.Helper()
	if err := unix.Mount("tmpfs", c.data, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		testkit.Missing(c.t, "the right to mount ("+err.Error()+")", "sudo -E go test -run FullDisk ./cmd/sluice")
	}
	c.t.Cleanup(func() {
		if err := unix.Unmount(c.data, unix.MNT_DETACH); err != nil {
			c.t.Error(err)
		}
	})
}

// fillDisk takes all free space until free is called.
func (c *cli) fillDisk() (free func()) {
	c.t.Helper()
	f, err := os.Create(filepath.Join(c.data, "filler"))
	testkit.Must(c.t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, unix.ENOSPC) {
		c.t.Fatalf("the disk is not full: %v", err)
	}
	return func() {
		if err := f.Truncate(0); err != nil {
			c.t.Error(err)
		}
		_ = f.Close()
	}
}

// With a full disk under the streams, each caller gets an error with a code or a correct result. Once there is space again, the same
// worker continues with all its records. It waits for a minute while nothing happens. Package events tests, in every run, that a full
// disk delays output and loses none.
func TestAFullDiskUnderTheStreams(t *testing.T) {
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("takes a minute: SLUICE_LONG=1 runs it, and `make chaos` does")
	}
	t.Parallel()
	c := newCLI(t)
	c.smallDisk("64m")
	c.up()
	before := c.exec("--key", "before", "--", "seq", "1", "1000")
	before.check(t).exits(0)
	fifo := newCLI(t).fifo("go")
	running := c.spawn(execArgs("--key", "running", "-n", "--", "bash", "-c", "echo begun; read -r line < "+fifo+"; seq 1 300000; exit 6")...)
	running.line()

	free := c.fillDisk()
	begin := time.Now()
	// In parallel: each waits half a minute for space before it fails.
	refused := c.spawn(execArgs("--key", "refused", "-n", "--", "bash", "-c", "seq 1 300000")...)
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	testkit.Must(t, err)
	_ = w.Close()
	for _, x := range []struct {
		*spawned
		name string
		want int
	}{{refused, "started on a full disk", 0}, {running, "running while the disk filled", 6}} {
		code, out := x.wait()
		t.Logf("%s: after %s code %d, %d bytes, %s", x.name, time.Since(begin).Round(time.Millisecond), code, len(out), x.stderr)
		whole := len(out) == seqBytes
		if !(code == x.want && whole) && (code == 0 || !coded(x.stderr.String())) {
			t.Errorf("%s: exit code %d with %d bytes, want %d with %d, or an error with a code: %s", x.name, code, len(out), x.want, seqBytes, x.stderr)
		}
	}

	free()
	deadline := time.Now().Add(testkit.Timeout)
	for {
		word := unique()
		got := c.exec("--", "echo", word)
		if got.code == 0 && got.stdout == word+"\n" {
			break
		}
		if got.code == 0 || !coded(got.stderr) {
			t.Errorf("exit code %d, standard error = %q, want a code in it", got.code, got.stderr)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the worker does not continue: exit code %d: %s", got.code, got.stderr)
		}
	}
	t.Logf("the worker continues after %s", time.Since(begin).Round(time.Millisecond))
	c.exec("--key", "before", "--", "seq", "1", "1000").check(t).exits(0).prints(before.stdout)
	c.run("logs", schemas.ProcessID("default", "t1", "before")).check(t).prints(before.stdout)
	c.good()
}

// A disk that has filled since the streams were made has them still: `up`, commands with a server of their own and readers start on it.
func TestServerStartsOnADiskThatHasFilled(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.smallDisk("512m")
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: talk\nagent: {command: [cat]}\n")
	limit := func() int64 {
		t.Helper()
		for _, s := range decode[schemas.Status](t, c.run("status", "--json").stdout).Streams {
			if strings.HasSuffix(s.Name, "-LOG") {
				return s.MaxBytes
			}
		}
		t.Fatal("no stream LOG")
		return 0
	}
	s := c.up()
	process := c.exec("--json", "--", "echo", "first").result(t).Process
	size := limit()
	testkit.Equal(t, "exit code of up", s.stop(), 0)
	filler := filepath.Join(c.data, "filler")
	testkit.Must(t, os.WriteFile(filler, make([]byte, 400<<20), 0o600))
	c.exec("--", "echo", "second").check(t).exits(0).prints("second\n")
	c.run("logs", process).check(t).exits(0).prints("first\n")
	s = c.up()
	testkit.Equal(t, "size of LOG", limit(), size)
	c.exec("--", "echo", "third").check(t).exits(0).prints("third\n")
	c.run("message", "--thread", "t2", "--template", "talk", "hello").check(t).exits(0).printsPart("hello")
	c.run("messages", "--thread", "t2").check(t).exits(0).printsPart("hello") // its stream is made by the first one
	c.run("logs", process).check(t).exits(0).prints("first\n")
	testkit.Equal(t, "exit code of up", s.stop(), 0)

	free := c.fillDisk() // to the last byte
	for _, args := range [][]string{{"logs", process}, {"process", "list", "--all"}, {"session", "list"}} {
		got := c.run(args...)
		t.Logf("sluice %s on a full disk: exit code %d, %q, %s", args, got.code, got.stdout, got.stderr)
		if got.code != 0 && !strings.Contains(got.stderr, "disk") && !strings.Contains(got.stderr, "space") {
			t.Errorf("sluice %s: standard error %q, want an error that names the disk", args, got.stderr)
		}
	}
	free()
	c.exec("--", "echo", "fourth").check(t).exits(0).prints("fourth\n")
}

// seqBytes is the size of the output of `seq 1 300000`.
const seqBytes = 1988895

// coded reports whether a message begins with an error code.
func coded(text string) bool {
	for _, code := range schemas.Codes() {
		if strings.Contains(text, "sluice: "+string(code)+": ") {
			return true
		}
	}
	return false
}
