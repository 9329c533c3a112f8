package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// faultyProxy forwards to the server, and fails a share of the requests: with 500, with 503 SlowDown, by a response that never
// comes, or by a cut connection, before the request has been served or after.
type faultyProxy struct {
	share float64
	to    *httputil.ReverseProxy

	mu     sync.Mutex
	random *rand.Rand
	kinds  [6]int
}

func (p *faultyProxy) draw() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random.Float64() >= p.share {
		return -1
	}
	kind := p.random.IntN(len(p.kinds))
	p.kinds[kind]++
	return kind
}

func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch p.draw() {
	case 0:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "<Error><Code>InternalError</Code><Message>try again</Message></Error>")
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "<Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>")
	case 2:
		cut(w)
	case 3: // served, and the response lost
		p.to.ServeHTTP(httptest.NewRecorder(), r)
		cut(w)
	case 4: // served, and half of the response lost
		rec := httptest.NewRecorder()
		p.to.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
		cut(w)
	case 5: // no response until the client times out
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	default:
		p.to.ServeHTTP(w, r)
	}
}

// cut closes the connection during the response.
func cut(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok && w.Header().Get("Content-Length") != "" {
		f.Flush()
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestSyncSurvivesServerFaults(t *testing.T) { treetest.Layouts(t, serverFaults) }

func serverFaults(t *testing.T, o treetest.Option) {
	target, err := url.Parse(server.Endpoint)
	testkit.Must(t, err)
	random := rand.New(rand.NewPCG(7, 8))
	behind := &http.Transport{}
	defer behind.CloseIdleConnections()
	proxy := &faultyProxy{share: 0.2, random: rand.New(rand.NewPCG(9, 10)), to: &httputil.ReverseProxy{
		Transport: behind,
		Rewrite: func(r *httputil.ProxyRequest) { // the signature covers the host name
			host := r.In.Host
			r.SetURL(target)
			r.Out.Host = host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
	front := httptest.NewServer(proxy)
	defer front.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	for _, attempts := range []int{12, 2} {
		bad, err := s3store.Open(t.Context(), s3store.Options{
			Bucket: gateway.Bucket, Prefix: fmt.Sprint(t.Name(), attempts), Endpoint: front.URL,
			Client: &http.Client{Timeout: 300 * time.Millisecond, Transport: transport},
		})
		testkit.Must(t, err)
		good := open(t, fmt.Sprint(t.Name(), attempts))
		retried := objectstore.Retry(bad, objectstore.RetryPolicy{Attempts: attempts, First: time.Millisecond, Longest: 5 * time.Millisecond})
		a := treetest.New(t)
		for i := range 50 {
			a.Write(fmt.Sprintf("d%d/f%d", i%5, i), strings.Repeat(fmt.Sprint(i), 500))
		}
		a.Push(good, o)
		before, stored := a.List(), treetest.Objects(t, good)
		done, failed := 0, 0
		for round := range treetest.Rounds(8, 60) {
			for range 5 {
				i := random.IntN(50)
				a.Write(fmt.Sprintf("d%d/f%d", i%5, i), fmt.Sprint(round, random.Int()))
			}
			a.Write("large", strings.Repeat(fmt.Sprint(round), 1<<20))
			_, err := a.Syncer(retried).Push(t.Context())
			seen := treetest.New(t)
			seen.Pull(good)
			toOld, toNew := treetest.Differences(before, seen.List()), treetest.Differences(a.List(), seen.List())
			switch {
			case err == nil && toNew != "":
				t.Fatalf("a successful push has not stored everything (-want +got):\n%s", toNew)
			case err == nil:
				done++
			case schemas.CodeOf(err) != schemas.CodeUnavailable:
				t.Fatalf("code = %q, want unavailable (error: %v)", schemas.CodeOf(err), err)
			case toOld != "" && toNew != "":
				t.Fatalf("a failed push left neither the old tree nor the new one (error: %v)", err)
			case toOld == "" && !slices.Equal(treetest.Objects(t, good), stored):
				t.Fatalf("a failed push changed objects (error: %v, -want +got):\n%s", err, treetest.Differences(stored, treetest.Objects(t, good)))
			default:
				failed++
			}
			a.Push(good)
			before, stored = a.List(), treetest.Objects(t, good)
			b := treetest.New(t)
			if _, err := b.Syncer(retried).Pull(t.Context()); err == nil {
				treetest.Same(t, a, b)
			} else if schemas.CodeOf(err) != schemas.CodeUnavailable {
				t.Fatalf("code = %q, want unavailable (error: %v)", schemas.CodeOf(err), err)
			}
			for _, w := range []*treetest.Tree{seen, b} {
				w.Must(os.RemoveAll(w.Dir))
			}
		}
		t.Logf("%d attempts for each request: %d pushes succeeded, %d failed; faults by kind %v", attempts, done, failed, proxy.kinds)
		if attempts == 12 && failed > 0 {
			t.Errorf("%d pushes failed with %d attempts for each request, want none", failed, attempts)
		}
	}
}

func TestConcurrentPushesLoseNothing(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		treetest.ConcurrentPushes(t, objectstore.Retry(open(t, t.Name()), objectstore.RetryPolicy{}), o)
	})
}
