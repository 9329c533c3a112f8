package e2e

import (
	"net/http"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
)

// requests notes the requests to a server.
type requests struct {
	http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen = append(r.seen, request.Method+" "+request.Header.Get("If-None-Match"))
	r.mu.Unlock()
	return r.RoundTripper.RoundTrip(request)
}

// TestContentInOneRequest stores what is larger than a part by one conditional request, and what is smaller in parts. Sync 3.
func TestContentInOneRequest(t *testing.T) {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	seen := &requests{RoundTripper: transport}
	s, err := s3store.Open(t.Context(), s3store.Options{
		Bucket: gateway.Bucket, Prefix: t.Name(), Endpoint: server.Endpoint, Client: &http.Client{Transport: seen},
	})
	testkit.Must(t, err)
	content := objectstore.Bytes(make([]byte, objectstore.PartsFrom+1))
	content.Send = objectstore.InOne
	_, err = s.Put(t.Context(), "one", content, objectstore.Condition{Absent: true})
	testkit.Must(t, err)
	testkit.Equal(t, "requests", seen.seen, []string{"PUT *"})
	seen.seen = nil
	content = objectstore.Bytes([]byte("x"))
	content.Send = objectstore.InParts
	_, err = s.Put(t.Context(), "parts", content, objectstore.Condition{Absent: true})
	testkit.Must(t, err)
	testkit.Equal(t, "requests", seen.seen, []string{"POST ", "PUT ", "POST *"})
}
