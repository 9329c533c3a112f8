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
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/schemas"
)

// dirVariable tells the test binary to be a server, and in which folder.
const (
	dirVariable        = "SLUICE_TEST_SERVE"
	durabilityVariable = "SLUICE_TEST_DURABILITY"
	killToken          = "token-of-the-test"
)

// serve is a server until its standard input ends, which it does with its parent too.
func serve(dir string) int {
	s, err := embedded.Start(embedded.Config{Dir: dir, Listen: "127.0.0.1:0", Token: killToken, Durability: embedded.Durability(os.Getenv(durabilityVariable)), StoreBytes: 1 << 30})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.URL())
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	s.Close()
	return 0
}

// child is a server that can be killed.
type child struct {
	cmd  *exec.Cmd
	url  string
	conn *events.Conn
}

func spawn(t *testing.T, dir string, d embedded.Durability) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), dirVariable+"="+dir, durabilityVariable+"="+string(d))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c.url = strings.TrimSpace(line)
	if c.conn, err = events.Connect(events.Options{URL: c.url, Token: killToken}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.conn.Close)
	return c
}

// kill ends it as a crash would.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have been killed before
	_ = c.cmd.Wait()
}

// Whatever was acked is there after the server was killed in the middle of writing.
func TestKilledServerLosesNothingAcked(t *testing.T) {
	for _, d := range []embedded.Durability{embedded.DurabilityInterval, embedded.DurabilityFsync} {
		t.Run(string(d), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			dir := filepath.Join(t.TempDir(), "nats")
			acked := map[string]uint64{} // by process
			for round := range 3 {
				c := spawn(t, dir, d)
				if err := c.conn.Ensure(ctx, events.Topology{CommandBytes: 8 << 20, EventBytes: 128 << 20, LogBytes: 256 << 20}); err != nil {
					t.Fatal(err)
				}
				for process, seq := range acked {
					last, err := c.conn.Last(ctx, schemas.DefaultTenant, "t", process)
					if err != nil || last.Seq != seq {
						t.Fatalf("round %d: the record of %s, acked at %d: %v, %v", round, process, seq, last, err)
					}
				}
				publishUntilKilled(t, ctx, c, round, acked)
				c.conn.Close()
			}
			if len(acked) < 300 {
				t.Errorf("%d records were acked in all", len(acked))
			}
		})
	}
}

// publishUntilKilled writes records from several goroutines, and kills the server while they are at it.
func publishUntilKilled(t *testing.T, ctx context.Context, c *child, round int, acked map[string]uint64) {
	t.Helper()
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
				seq, err := c.conn.Append(writing, ev, 0)
				if err != nil {
					return // killed: what was not acked may or may not be there
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
