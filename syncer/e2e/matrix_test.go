package e2e

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestMatrix measures what each server honors and what Sluice does then: docs/sync.md has exactly that line.
func TestMatrix(t *testing.T) {
	doc, err := os.ReadFile("../../docs/sync.md")
	testkit.Must(t, err)
	onServers(t, func(t *testing.T, s *gateway.Server, _ []treetest.Option) {
		m := measure{t, openAt(t, s, t.Name()+rand.Text())}
		row := []string{"", string(s.Kind)}
		for _, send := range []objectstore.Sending{objectstore.InOne, objectstore.InParts} {
			row = append(row, m.absent(send), m.match(send))
		}
		row = append(row, m.digest(), m.etag(objectstore.InOne), m.etag(objectstore.InParts), push(t, s), "")
		if line := strings.TrimSpace(strings.Join(row, " | ")); !strings.Contains(string(doc), "\n"+line+"\n") {
			t.Errorf("docs/sync.md lacks what was measured:\n%s", line)
		}
	})
}

// measure asks a server.
type measure struct {
	*testing.T
	store *s3store.Store
}

func (m measure) put(key, text string, send objectstore.Sending, cond objectstore.Condition) (string, error) {
	c := objectstore.Bytes([]byte(text))
	c.Send = send
	return m.store.Put(m.Context(), key, c, cond)
}

// refuses returns whether a Put that must fail did.
func (m measure) refuses(err error, want ...schemas.Code) string {
	m.Helper()
	if err == nil {
		return "no"
	}
	for _, code := range want {
		if schemas.CodeOf(err) == code {
			return "yes"
		}
	}
	m.Fatal(err)
	return ""
}

func (m measure) absent(send objectstore.Sending) string {
	key := fmt.Sprint("absent", send)
	_, err := m.put(key, "1", send, objectstore.Condition{Absent: true})
	testkit.Must(m.T, err)
	_, err = m.put(key, "2", send, objectstore.Condition{Absent: true})
	return m.refuses(err, schemas.CodeConflict)
}

func (m measure) match(send objectstore.Sending) string {
	key := fmt.Sprint("match", send)
	first, err := m.put(key, "1", send, objectstore.Condition{})
	testkit.Must(m.T, err)
	_, err = m.put(key, "2", send, objectstore.Condition{})
	testkit.Must(m.T, err)
	_, err = m.put(key, "3", send, objectstore.Condition{Match: first})
	return m.refuses(err, schemas.CodeConflict)
}

// digest returns whether the server refuses content that does not have the SHA-256 of the request.
func (m measure) digest() string {
	c, sum := objectstore.Bytes([]byte("content")), sha256.Sum256([]byte("other"))
	c.SHA256 = &sum
	_, err := m.store.Put(m.Context(), "digest", c, objectstore.Condition{})
	return m.refuses(err, schemas.CodeInvalidArgument, schemas.CodeUnavailable, schemas.CodeUnauthenticated)
}

// etag returns what the ETag of an object is.
func (m measure) etag(send objectstore.Sending) string {
	token, err := m.put("etag", "text", send, objectstore.Condition{})
	testkit.Must(m.T, err)
	sum := md5.Sum([]byte("text"))
	switch token = strings.Trim(token, `"`); token {
	case fmt.Sprintf("%x", sum):
		return "MD5"
	case fmt.Sprintf("%x-1", md5.Sum(sum[:])):
		return "MD5 of MD5s"
	}
	return "other"
}

// push returns what a push does: of a file over a part, in the plain layout.
func push(t *testing.T, s *gateway.Server) string {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	seen := &counted{RoundTripper: transport}
	raw, err := s3store.Open(t.Context(), s3store.Options{
		Bucket: gateway.Bucket, Prefix: t.Name() + rand.Text(), Endpoint: s.Endpoint, Client: &http.Client{Transport: seen},
	})
	testkit.Must(t, err)
	store := objectstore.Retry(raw, objectstore.RetryPolicy{})
	w := treetest.New(t)
	w.Write("large", strings.Repeat("x", objectstore.PartsFrom+1))
	_, err = w.Syncer(store, treetest.Layout(state.Plain)).Push(t.Context())
	switch {
	case errors.Is(err, objectstore.ErrIgnored):
		for info, err := range store.List(t.Context(), "") {
			t.Errorf("a refused push left %s (error: %v)", info.Key, err)
		}
		w.Push(store, treetest.Layout(state.Plain), singleWriter)
		treetest.Same(t, w, pulled(t, store))
		return "refuses to push without `--single-writer`"
	case err != nil:
		t.Fatal(err)
	}
	treetest.Same(t, w, pulled(t, store))
	if seen.completed > 0 {
		return "sends large files in parts"
	}
	return "sends large files of the plain layout in one request"
}

// counted counts the requests that complete an object in parts, beside probes.
type counted struct {
	http.RoundTripper
	mu        sync.Mutex
	completed int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") && !strings.Contains(r.URL.Path, state.ProbePrefix) {
		c.mu.Lock()
		c.completed++
		c.mu.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}
