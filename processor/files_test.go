package processor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// transfer is a file operation of thread t, by its messages.
type transfer struct {
	*cell
	id string
}

// send sends a message, and waits for its answer when it is to have one.
func (f transfer) send(m schemas.FileMessage, answered bool) (*schemas.FileReply, error) {
	f.t.Helper()
	m.Tenant, m.Thread, m.Transfer = schemas.DefaultTenant, "t", f.id
	k, err := f.conn.SendFile(m)
	f.must(err)
	defer k.Close()
	if !answered {
		return nil, nil
	}
	a, err := k.Wait(f.ctx)
	switch {
	case err != nil:
		return nil, err
	case a.Reply != nil && a.Reply.Error != nil:
		return nil, a.Reply.Error
	}
	return a.Reply, nil
}

// begin begins a write of the file x.
func (f transfer) begin() {
	f.t.Helper()
	_, err := f.send(schemas.FileMessage{Request: &schemas.FileRequest{Op: schemas.FileWrite, Path: "x"}}, true)
	f.must(err)
}

// piece sends the piece with this number.
func (f transfer) piece(n int, answered bool) error {
	f.t.Helper()
	_, err := f.send(schemas.FileMessage{Offset: int64(n) * schemas.MaxFilePiece, Data: make([]byte, schemas.MaxFilePiece)}, answered)
	return err
}

// workspace is the folder of thread t.
func (c *cell) workspace() string {
	return filepath.Join(c.dir, "workspaces", schemas.DefaultTenant, "t")
}

// filePrograms are the processes that work on files in thread t's workspace.
func (c *cell) filePrograms() (pids []int) {
	c.t.Helper()
	all, err := os.ReadDir("/proc")
	c.must(err)
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline") // it may have ended
		cwd, _ := os.Readlink("/proc/" + e.Name() + "/cwd")
		if strings.HasPrefix(string(line), "sluice-files\x00") && cwd == c.workspace() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitNoPrograms waits for the end of all work on files, which must have left nothing.
func (c *cell) awaitNoPrograms() {
	c.t.Helper()
	for tick := time.NewTicker(20 * time.Millisecond); len(c.filePrograms()) > 0; {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.t.Fatalf("processes %v still work on files", c.filePrograms())
		}
	}
	left, err := os.ReadDir(c.workspace())
	c.must(err)
	equal(c.t, "names in the workspace", len(left), 0)
}

// A caller that sends nothing more ends its transfer, also while the program takes no content. Its request, sent again, keeps it alive.
func TestSilentCallerEndsItsTransfer(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("needs /proc")
	}
	const patience = 2 * time.Second
	c, _ := newRig(t, func(cfg *processor.Config) { cfg.Timeouts().Silent = patience })
	_, err := c.place(schemas.PlaceRequest{})
	c.must(err)
	f := transfer{c, "w1"}
	for n := 2; !f.asksWhileStopped(patience); n++ {
		t.Logf("transfer %s proves nothing: the test was silent for %v", f.id, patience)
		c.awaitNoPrograms()
		f.id = fmt.Sprint("w", n)
	}
	c.awaitNoPrograms()
	testkit.WantCode(t, f.piece(1, true), schemas.CodeDeadlineExceeded)
}

// asksWhileStopped begins a write whose program takes no content, and sends its request again for twice as long as a caller may be silent.
// It reports whether no two of its messages can have reached the worker that far apart; the write goes on then.
func (f transfer) asksWhileStopped(patience time.Duration) (inTime bool) {
	f.t.Helper()
	sent := time.Now()
	late := func() bool { return time.Since(sent) >= patience }
	f.begin()
	err := f.piece(0, true)
	pids := f.filePrograms()
	if late() {
		return false
	}
	f.must(err)
	if len(pids) != 1 {
		f.t.Fatalf("processes %v work on files, want one", pids)
	}
	f.must(syscall.Kill(pids[0], syscall.SIGSTOP))
	sent = time.Now()
	for n := 1; n < schemas.MaxFileWindow; n++ { // more than the pipe holds
		f.must(f.piece(n, false))
	}
	again := &schemas.FileRequest{Op: schemas.FileWrite, Path: "x", Again: true}
	for began := time.Now(); time.Since(began) < 2*patience; {
		now := time.Now()
		_, err := f.send(schemas.FileMessage{Request: again}, true)
		if late() {
			return false
		}
		f.must(err)
		sent = now
		<-time.After(patience / 10)
	}
	pids = f.filePrograms()
	if late() {
		return false
	}
	equal(f.t, "processes while the caller asks again", len(pids), 1)
	return true
}

// A piece that comes before one that was lost fails nothing: both are sent again.
func TestLostPieceIsSentAgain(t *testing.T) {
	c, _ := newRig(t)
	_, err := c.place(schemas.PlaceRequest{})
	c.must(err)
	f := transfer{c, "w1"}
	f.begin()
	c.must(f.piece(1, false))
	c.must(f.piece(0, true))
	c.must(f.piece(1, true))
	r, err := f.send(schemas.FileMessage{Offset: 2 * schemas.MaxFilePiece, End: true}, true)
	c.must(err)
	equal(t, "bytes", r.Bytes, 2*schemas.MaxFilePiece)
}

// A worker that is killed in the middle of a write leaves the old file, and no process, once it is back. Its caller begins again.
func TestTransferEndsWithItsWorker(t *testing.T) {
	c, dead := newRig(t, hasty)
	_, err := c.place(schemas.PlaceRequest{})
	c.must(err)
	f := transfer{c, "w1"}
	f.begin()
	c.must(f.piece(0, true))
	dead.crash()
	dead.again()
	c.awaitNoPrograms()
	testkit.WantCode(t, f.piece(1, true), schemas.CodeNotFound)
	second := transfer{c, "w2"}
	second.begin()
	_, err = second.send(schemas.FileMessage{Data: []byte("x"), End: true}, true)
	c.must(err)
}
