package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// serveProgram is the helper program that serves a folder with a durability.
const (
	serveProgram = "serve"
	killToken    = "token-of-the-test"
)

// serve runs a server until its standard input ends, which it also does when its parent dies.
func serve(args []string) int {
	s, err := embedded.Start(embedded.Config{Dir: args[0], Listen: "127.0.0.1:0", Token: killToken, Durability: embedded.Durability(args[1]), StoreBytes: 1 << 30})
	if err != nil {
		return testkit.Fail(err)
	}
	fmt.Println(s.URL())
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	s.Close()
	return 0
}

// child is a server in another process, with a connection to it.
type child struct {
	cmd    *exec.Cmd
	conn   *events.Conn
	worker *events.Worker
}

func spawn(t *testing.T, dir string, d embedded.Durability) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], serveProgram, dir, string(d))
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	c := &child{cmd: cmd}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	testkit.Must(t, err)
	c.conn, err = events.Connect(events.Options{URL: strings.TrimSpace(line), Token: killToken})
	testkit.Must(t, err)
	t.Cleanup(c.conn.Close)
	c.worker = c.conn.Worker()
	return c
}

// kill ends the server as a crash would.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may be dead already
	_ = c.cmd.Wait()
}

func TestKilledServerKeepsAckedRecords(t *testing.T) {
	for _, d := range []embedded.Durability{embedded.DurabilityInterval, embedded.DurabilityFsync} {
		t.Run(string(d), func(t *testing.T) {
			ctx := testkit.Context(t)
			dir := filepath.Join(t.TempDir(), "nats")
			acked := map[string]uint64{} // by process
			for round := range 3 {
				c := spawn(t, dir, d)
				testkit.Must(t, c.conn.Ensure(ctx, events.Topology{CommandBytes: 8 << 20, EventBytes: 128 << 20, LogBytes: 256 << 20}))
				for process, seq := range acked {
					last, err := c.worker.Records.Last(ctx, schemas.DefaultTenant, "t", process)
					if err != nil {
						t.Fatalf("round %d: read the acked record of %s: %v", round, process, err)
					}
					if last.Seq != seq {
						t.Fatalf("round %d: the record of %s has sequence %d, want %d", round, process, last.Seq, seq)
					}
				}
				publishUntilKilled(ctx, c, round, acked)
				c.conn.Close()
			}
			if len(acked) < 300 {
				t.Errorf("%d records were acked, want at least 300", len(acked))
			}
		})
	}
}

// publishUntilKilled writes records from several goroutines, and kills the server meanwhile.
func publishUntilKilled(ctx context.Context, c *child, round int, acked map[string]uint64) {
	const writers, enough = 4, 150
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	count := 0
	var once, wg = sync.Once{}, sync.WaitGroup{}
	for w := range writers {
		wg.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				p := fmt.Sprintf("p%d-%d-%d", round, w, i)
				ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, ID: p, Type: schemas.TypeProcessAccepted, Tenant: schemas.DefaultTenant, Thread: "t", Process: p, Data: []byte(`"` + strings.Repeat("x", 500) + `"`)}
				seq, err := c.worker.Records.Append(writing, ev, 0)
				if err != nil {
					return // killed: a record without an ack may or may not be stored
				}
				mu.Lock()
				acked[p] = seq
				count++
				full := count >= enough
				mu.Unlock()
				if full {
					once.Do(func() {
						wg.Go(func() {
							c.kill()
							stop()
							c.conn.Close()
						})
					})
				}
			}
		})
	}
	wg.Wait()
}
