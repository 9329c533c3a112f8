package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// lacks has the conformance tests that a server is known to fail. docs/sync.md says why, and TestMatrix measures it.
func lacks(kind gateway.Kind) []string {
	if kind == gateway.Rclone {
		return []string{"Conditions", "Race", "Delete", "Probe", "ReadersSeeWholeObjects"}
	}
	return nil
}

// onServers runs a test on each server. options are what a push to it needs.
func onServers(t *testing.T, test func(t *testing.T, s *gateway.Server, options []treetest.Option)) {
	for _, s := range servers {
		t.Run(string(s.Kind), func(t *testing.T) {
			var options []treetest.Option
			if s.Kind == gateway.Rclone {
				options = append(options, singleWriter)
			}
			test(t, s, options)
		})
	}
}

func singleWriter(c *syncer.Config) { c.SingleWriter = true }

func TestStoreConforms(t *testing.T) {
	onServers(t, func(t *testing.T, s *gateway.Server, _ []treetest.Option) {
		storetest.Run(t, func(t *testing.T) objectstore.Store { return openAt(t, s, t.Name()) }, lacks(s.Kind)...)
	})
}

// childProgram is the first argument of a process that a test starts and kills. Its further arguments are the operation, the folder,
// the endpoint, the prefix, the form, see [treetest.Form], "true" for a single writer, and, or nothing, "true" for [treetest.Apart].
const childProgram = "sync"

func syncChild(args []string) int {
	store, err := s3store.Open(context.Background(), s3store.Options{Bucket: gateway.Bucket, Endpoint: args[2], Prefix: args[3]})
	if err != nil {
		return testkit.Fail(err)
	}
	cfg := syncer.Config{Root: args[1], Store: objectstore.Retry(store, objectstore.RetryPolicy{}), Remote: "test://store",
		SingleWriter: args[5] == "true"}
	treetest.Form(args[4])(&cfg)
	if len(args) > 6 && args[6] == "true" {
		treetest.Apart(&cfg)
	}
	s, err := syncer.New(cfg)
	if err == nil && args[0] == "push" {
		_, err = s.Push(context.Background())
	} else if err == nil {
		_, err = s.Pull(context.Background())
	}
	if err != nil {
		return testkit.Fail(err)
	}
	return 0
}

// underWay is a proxy that can wait for the requests that a killed process has left.
type underWay struct {
	to    http.Handler
	front *httptest.Server
	group sync.WaitGroup
}

func newUnderWay(t *testing.T, s *gateway.Server) *underWay {
	t.Helper()
	u := &underWay{to: forward(t, s)}
	u.front = httptest.NewServer(u)
	t.Cleanup(u.front.Close)
	return u
}

func (u *underWay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.group.Add(1)
	defer u.group.Done()
	u.to.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
}

func (u *underWay) end() {
	u.front.CloseClientConnections()
	u.group.Wait()
}

// TestKilledOperations kills pushes and pulls on each server, in both layouts and with states in segments.
func TestKilledOperations(t *testing.T) {
	onServers(t, func(t *testing.T, s *gateway.Server, options []treetest.Option) {
		for op, run := range map[string]func(*treetest.Kills, *testing.T){"push": (*treetest.Kills).Pushes, "pull": (*treetest.Kills).Pulls} {
			t.Run(op, func(t *testing.T) {
				treetest.Forms(t, func(t *testing.T, form string) {
					endpoint, killed := s.Endpoint, func() {}
					if len(options) > 0 { // without conditions, a request under way may replace what comes after it
						under := newUnderWay(t, s)
						endpoint, killed = under.front.URL, under.end
					}
					store := objectstore.Retry(openAt(t, s, t.Name()), objectstore.RetryPolicy{})
					// A write that was cut off leaves a file of rclone's in its folder, and then no file can replace that folder.
					flat := s.Kind == gateway.Rclone && form == string(state.Plain)
					run(&treetest.Kills{Store: store, Flat: flat, Plain: form == string(state.Plain), Options: append(options, treetest.Form(form)),
						Rounds: treetest.Rounds(1, 200), Killed: killed, Command: func(op, root string) *exec.Cmd {
							return exec.Command(os.Args[0], childProgram, op, root, endpoint, t.Name(), form, fmt.Sprint(len(options) > 0))
						}}, t)
				})
			})
		}
	})
}
