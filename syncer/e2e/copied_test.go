package e2e

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// traffic counts the bytes of request bodies, and of the responses that were asked for by GET.
type traffic struct {
	http.RoundTripper
	sent, received atomic.Int64
}

func (c *traffic) RoundTrip(request *http.Request) (*http.Response, error) {
	c.sent.Add(max(0, request.ContentLength))
	response, err := c.RoundTripper.RoundTrip(request)
	if err == nil && request.Method == http.MethodGet {
		c.received.Add(max(0, response.ContentLength))
	}
	return response, err
}

func openCounted(t *testing.T, prefix string) (objectstore.Store, *traffic) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	counted := &traffic{RoundTripper: transport}
	s, err := s3store.Open(t.Context(), s3store.Options{
		Bucket: gateway.Bucket, Prefix: prefix, Endpoint: server.Endpoint, Client: &http.Client{Transport: counted},
	})
	testkit.Must(t, err)
	return objectstore.Retry(s, objectstore.RetryPolicy{}), counted
}

// random is size bytes that do not repeat.
func random(size int, seed byte) string {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // never fails
	return string(data)
}

// TestLargePlainFileIsSentOnce pushes a large file in the plain layout: the store copies it from the packs to its own path. Sync 10.
func TestLargePlainFileIsSentOnce(t *testing.T) {
	const size = 40 << 20
	s, counted := openCounted(t, t.Name()+"/odd ?+%#")
	a, b := treetest.New(t), treetest.New(t)
	a.Write("a large file", random(size, 1))
	testkit.Equal(t, "notes", a.Push(s, treetest.Layout(state.Plain)).Notes, []string(nil))
	if sent := counted.sent.Load(); sent > size+1<<20 {
		t.Errorf("%d bytes were sent for a file of %d", sent, size)
	}
	b.Pull(s)
	treetest.Same(t, a, b)
}

// TestAdoptedFilesAreReadOnce pulls what another tool has stored in parts, whose ETag is no MD5: it is downloaded once, and neither the
// next pull nor a push that replaces it downloads it again. Sync 10.
func TestAdoptedFilesAreReadOnce(t *testing.T) {
	const size = 40 << 20
	s, counted := openCounted(t, t.Name())
	for _, name := range []string{"a/large", "b"} {
		_, err := s.Put(t.Context(), name, objectstore.Bytes([]byte(random(size, 2))), objectstore.Condition{})
		testkit.Must(t, err)
	}
	a, b := treetest.New(t), treetest.New(t)
	read := func(what string, most int64) {
		t.Helper()
		if n := counted.received.Swap(0); n > most+1<<20 {
			t.Errorf("%s downloaded %d bytes, want at most %d", what, n, most)
		}
	}
	a.Pull(s, treetest.Layout(state.Plain))
	read("the first pull", 2*size)
	if strings.Contains(a.Read(state.ReservedName), strings.Repeat("0", 32)) {
		t.Error("the state file has no checksum of an adopted file")
	}
	a.Want("b", random(size, 2))
	if r := a.Pull(s, treetest.Layout(state.Plain)); r.Changed {
		t.Error("the second pull changed something")
	}
	read("the second pull", 0)
	a.Write("b", random(size, 3))
	a.Push(s, treetest.Layout(state.Plain))
	read("the push", 0)
	b.Pull(s)
	treetest.Same(t, a, b)
	read("a pull of it", 2*size)
	b.Write("b", random(size, 4))
	b.Push(s)
	read("a push of another folder", 0)
}
