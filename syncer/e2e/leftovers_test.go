package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/s3store/s3test"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// gate is a proxy that passes a number of the parts of one object, and holds the others until it opens.
type gate struct {
	*underWay
	object string // a part of its key
	pass   int64
	held   chan struct{} // is closed with the first part that is held
	open   chan struct{}
	gone   context.Context // the context of a request does not end with its client while its body is not read
	drop   context.CancelFunc

	once          sync.Once
	begins, parts atomic.Int64
}

func newGate(t *testing.T, s *gateway.Server, object string, pass int64) *gate {
	t.Helper()
	g := &gate{underWay: &underWay{to: forward(t, s)}, object: object, pass: pass, held: make(chan struct{}), open: make(chan struct{})}
	g.gone, g.drop = context.WithCancel(context.WithoutCancel(t.Context()))
	g.front = httptest.NewServer(g)
	t.Cleanup(g.front.Close)
	t.Cleanup(g.drop)
	return g
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if q := r.URL.Query(); strings.Contains(r.URL.Path, g.object) {
		switch {
		case q.Has("uploads"):
			g.begins.Add(1)
		case r.Method == http.MethodPut && q.Has("uploadId") && g.parts.Add(1) > g.pass:
			g.once.Do(func() { close(g.held) })
			select {
			case <-g.open:
			case <-g.gone.Done():
				w.WriteHeader(http.StatusForbidden)
				return
			}
		}
	}
	g.underWay.ServeHTTP(w, r)
}

// killInParts starts a push and kills it when a part of an object is held.
func killInParts(t *testing.T, s *gateway.Server, root, prefix, form, object string, single, apart bool) {
	t.Helper()
	g := newGate(t, s, object, 1)
	cmd := exec.Command(os.Args[0], childProgram, "push", root, g.front.URL, prefix, form, fmt.Sprint(single), fmt.Sprint(apart))
	cmd.Stderr = os.Stderr
	testkit.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-g.held:
		testkit.Must(t, cmd.Process.Kill())
		if err := <-ended; err == nil {
			t.Error("the push ended well, want killed")
		}
	case err := <-ended:
		t.Fatalf("the push ended before it sent parts: %v", err)
	}
	g.drop()
	g.end()
}

func uploadsAt(t *testing.T, s *gateway.Server, prefix string) []objectstore.Upload {
	t.Helper()
	all, err := s3test.Uploads(t.Context(), s.Endpoint, gateway.Bucket, prefix)
	testkit.Must(t, err)
	return all
}

// TestKilledUploadIsAborted kills pushes in the middle of an upload in parts: of a file of the plain layout, also with a sync's own
// files beside the folder, and of a damaged state that the packed layout keeps. Meanwhile another writer stores the same object in
// parts. The next push aborts the upload that was left, and neither that of the other writer nor, from a copy of the folder, any. Sync 10.
func TestKilledUploadIsAborted(t *testing.T) {
	const size = 40 << 20
	for name, form := range map[string]state.Layout{"plain": state.Plain, "apart": state.Plain, "packed": state.Packed} {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(t *testing.T, s *gateway.Server, options []treetest.Option) {
				a, prefix := treetest.New(t).Root(), t.Name()
				store := objectstore.Retry(openAt(t, s, prefix), objectstore.RetryPolicy{})
				single := len(options) > 0
				options = append(options, treetest.Layout(form))
				if name == "apart" {
					options = append(options, treetest.Apart)
				}
				a.Write("f", "1")
				a.Push(store, options...)
				object := "large"
				if form == state.Packed {
					object = state.DamagedPrefix
					treetest.PutState(t, store, []byte(random(size, 5)))
				}
				a.Write("large", random(size, 6))
				killInParts(t, s, a.Dir, prefix, string(form), object, single, name == "apart")
				left := uploadsAt(t, s, prefix)
				if len(left) != 1 {
					t.Fatalf("uploads that the killed push left = %v, want one", left)
				}

				other := newGate(t, s, left[0].Key, 1)
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				live, err := s3store.Open(t.Context(), s3store.Options{Bucket: gateway.Bucket, Prefix: prefix, Endpoint: other.front.URL,
					Client: &http.Client{Transport: transport}})
				testkit.Must(t, err)
				stored := make(chan error, 1)
				go func() {
					c := objectstore.Bytes([]byte(random(size, 7)))
					_, err := live.Put(t.Context(), left[0].Key, c, objectstore.Condition{})
					stored <- err
				}()
				<-other.held
				testkit.Equal(t, "uploads with that of the other writer", len(uploadsAt(t, s, prefix)), 2)

				if name == "plain" {
					copied := treetest.New(t).Root()
					copied.Dir = copied.Path("copy")
					copied.Must(os.CopyFS(copied.Dir, os.DirFS(a.Dir)))
					copied.Push(store, options...)
					testkit.Equal(t, "uploads after a push of a copy", len(uploadsAt(t, s, prefix)), 2)
				}
				a.Push(store, options...)
				if now := uploadsAt(t, s, prefix); len(now) != 1 || now[0] == left[0] {
					t.Errorf("uploads after the next push = %v, want the other writer's alone, not %v", now, left)
				}
				treetest.Same(t, a, pulled(t, store))
				if form == state.Plain {
					testkit.Equal(t, "differences", treetest.PlainDifferences(t, store, a), "")
				}
				a.WantNoLeftovers()
				a.WantExists("../root"+treetest.ApartSuffix+"/"+state.ReservedName+".uploads", false)

				close(other.open)
				testkit.Must(t, <-stored)
				testkit.Equal(t, "uploads that the other writer began", other.begins.Load(), int64(1))
				testkit.Equal(t, "uploads in the end", len(uploadsAt(t, s, prefix)), 0)
			})
		})
	}
}
