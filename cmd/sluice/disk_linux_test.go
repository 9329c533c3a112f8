package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// smallDisk is a disk of its own for a data folder.
func (c *cli) smallDisk(size string) {
	c.t.Helper()
	if err := unix.Mount("tmpfs", c.data, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		text := "cannot mount a small disk (" + err.Error() + "): run this test as root: sudo -E go test -run FullDisk ./cmd/sluice"
		if os.Getenv("CI") == "true" {
			c.t.Fatal(text)
		}
		c.t.Skip(text)
	}
	c.t.Cleanup(func() {
		if err := unix.Unmount(c.data, unix.MNT_DETACH); err != nil {
			c.t.Error(err)
		}
	})
}

// fillDisk takes all the room there is, and gives it back when told to.
func (c *cli) fillDisk() (free func()) {
	c.t.Helper()
	f, err := os.Create(filepath.Join(c.data, "filler"))
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.Copy(f, zeros{}); err == nil || !strings.Contains(err.Error(), "no space") {
		c.t.Fatalf("the disk is not full: %v", err)
	}
	return func() {
		if err := f.Truncate(0); err != nil {
			c.t.Error(err)
		}
		_ = f.Close()
	}
}

// A full disk under the streams: each caller gets a coded error or a true result, and once there is room again the same worker
// goes on, with all that was on record. It waits for a minute while nothing happens; that a full disk holds output up and loses none
// of it is tested in package events each time.
func TestAFullDiskUnderTheStreams(t *testing.T) {
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("takes a minute: SLUICE_LONG=1 runs it, and `make chaos` does")
	}
	t.Parallel()
	c := newCLI(t)
	c.smallDisk("64m")
	c.up()
	before := c.exec("--key", "before", "--", "seq", "1", "1000")
	if before.code != 0 {
		t.Fatalf("%+v", before)
	}
	fifo := newCLI(t).fifo("go")
	running := c.spawn(execArgs("--key", "running", "-n", "--", "bash", "-c", "echo begun; read -r line < "+fifo+"; seq 1 300000; exit 6")...)
	running.line()

	free := c.fillDisk()
	begin := time.Now()
	// Side by side: each of them waits half a minute for room before it gives up.
	refused := c.spawn(execArgs("--key", "refused", "-n", "--", "bash", "-c", "seq 1 300000")...)
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	for _, x := range []struct {
		*spawned
		name string
		want int
	}{{refused, "begun on a full disk", 0}, {running, "running as the disk filled", 6}} {
		code, out := x.wait()
		t.Logf("%s: after %s code %d, %d bytes, %s", x.name, time.Since(begin).Round(time.Millisecond), code, len(out), x.stderr)
		whole := len(out) == seqBytes
		if !(code == x.want && whole) && (code == 0 || !coded(x.stderr.String())) {
			t.Errorf("%s: neither a true result nor a coded error: code %d, %d bytes, %s", x.name, code, len(out), x.stderr)
		}
	}

	free()
	deadline := time.Now().Add(patience)
	for {
		word := unique()
		got := c.exec("--", "echo", word)
		if got.code == 0 && got.stdout == word+"\n" {
			break
		}
		if got.code == 0 || !coded(got.stderr) {
			t.Errorf("not yet, but without a code: %+v", got)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the worker does not go on: %+v", got)
		}
	}
	t.Logf("well again after %s", time.Since(begin).Round(time.Millisecond))
	if got := c.exec("--key", "before", "--", "seq", "1", "1000"); got.code != 0 || got.stdout != before.stdout {
		t.Errorf("the result of before: %+v", got)
	}
	if got := c.run("logs", schemas.ProcessID("default", "t1", "before")); got.stdout != before.stdout {
		t.Errorf("the log of before: %d bytes, want %d", len(got.stdout), len(before.stdout))
	}
	c.good()
}

// seqBytes is how much `seq 1 300000` prints.
const seqBytes = 1988895

// coded says whether a message begins with one of the codes.
func coded(text string) bool {
	for _, code := range schemas.Codes() {
		if strings.Contains(text, "sluice: "+string(code)+": ") {
			return true
		}
	}
	return false
}
