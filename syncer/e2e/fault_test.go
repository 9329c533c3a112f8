package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

const (
	clientTimeout = 300 * time.Millisecond
	allFaults     = 9
	withoutStalls = 7
)

// faultyProxy forwards to the server, and fails a share of the requests: with 500, with 503 SlowDown, by a response that never
// comes, or that stalls, by a cut connection, before the request has been served or after, or in its middle. Content comes back
// truncated, or with a flipped bit.
type faultyProxy struct {
	share  float64
	faults int // the first so many kinds
	to     *httputil.ReverseProxy

	mu     sync.Mutex
	random *rand.Rand
	kinds  [allFaults]int
}

func (p *faultyProxy) draw() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random.Float64() >= p.share {
		return -1
	}
	kind := p.random.IntN(p.faults)
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
		answer(w, rec, rec.Body.Len()/2)
		cut(w)
	case 5: // less, and the length of that
		rec := httptest.NewRecorder()
		p.to.ServeHTTP(rec, r)
		length := rec.Body.Len()
		if isContent(r, rec) {
			length /= 2
			rec.Header().Set("Content-Length", strconv.Itoa(length))
		}
		answer(w, rec, length)
	case 6: // a flipped bit
		rec := httptest.NewRecorder()
		p.to.ServeHTTP(rec, r)
		if isContent(r, rec) && rec.Body.Len() > 0 {
			rec.Body.Bytes()[rec.Body.Len()/2] ^= 1
		}
		answer(w, rec, rec.Body.Len())
	case 7: // no response until the client times out
		_, _ = io.Copy(io.Discard, r.Body)
		stall(r)
	case 8: // half of the response, and no more until the client times out
		rec := httptest.NewRecorder()
		p.to.ServeHTTP(rec, r)
		answer(w, rec, rec.Body.Len()/2)
		_ = http.NewResponseController(w).Flush() // a client that is gone
		stall(r)
	default:
		p.to.ServeHTTP(w, r)
	}
}

// isContent reports whether a response has the content of an object.
func isContent(r *http.Request, rec *httptest.ResponseRecorder) bool {
	return r.Method == http.MethodGet && rec.Code < 300 && !r.URL.Query().Has("list-type")
}

// stall waits until the client has timed out.
func stall(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(2 * clientTimeout): // it does not end when the server has left some of the body
	}
}

// answer sends the first bytes of a response.
func answer(w http.ResponseWriter, rec *httptest.ResponseRecorder, length int) {
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes()[:length])
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

func TestSyncSurvivesServerFaults(t *testing.T) {
	onServers(t, func(t *testing.T, s *gateway.Server, options []treetest.Option) {
		treetest.Layouts(t, func(t *testing.T, o treetest.Option) { serverFaults(t, s, o, options) })
	})
}

// forward returns a proxy to a server.
func forward(t *testing.T, s *gateway.Server) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(s.Endpoint)
	testkit.Must(t, err)
	behind := &http.Transport{}
	t.Cleanup(behind.CloseIdleConnections)
	return &httputil.ReverseProxy{
		Transport: behind,
		Rewrite: func(r *httputil.ProxyRequest) { // the signature covers the host name
			host := r.In.Host
			r.SetURL(target)
			r.Out.Host = host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
}

// behind returns a store behind a proxy.
func behind(t *testing.T, proxy http.Handler, prefix string, timeout time.Duration) *s3store.Store {
	t.Helper()
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	s, err := s3store.Open(t.Context(), s3store.Options{
		Bucket: gateway.Bucket, Prefix: prefix, Endpoint: front.URL, Client: &http.Client{Timeout: timeout, Transport: transport},
	})
	testkit.Must(t, err)
	return s
}

func serverFaults(t *testing.T, s *gateway.Server, o treetest.Option, options []treetest.Option) {
	random := rand.New(rand.NewPCG(7, 8))
	faults, timeout := allFaults, clientTimeout
	if len(options) > 0 { // without conditions, a request whose client has gone may replace what came after it
		faults, timeout = withoutStalls, time.Minute
	}
	proxy := &faultyProxy{share: 0.2, faults: faults, random: rand.New(rand.NewPCG(9, 10)), to: forward(t, s)}
	for _, attempts := range []int{12, 2} {
		prefix := fmt.Sprint(t.Name(), attempts)
		bad, good := behind(t, proxy, prefix, timeout), openAt(t, s, prefix)
		retried := objectstore.Retry(bad, objectstore.RetryPolicy{Attempts: attempts, First: time.Millisecond, Longest: 5 * time.Millisecond})
		// Reads are repeated, as everywhere in the product: rclone's server resets connections under load, without any fault of the proxy.
		steady := objectstore.Retry(good, objectstore.RetryPolicy{Attempts: 12, First: time.Millisecond, Longest: time.Second})
		a := treetest.New(t)
		for i := range 50 {
			a.Write(fmt.Sprintf("d%d/f%d", i%5, i), strings.Repeat(fmt.Sprint(i), 500))
		}
		a.Push(good, append(options, o)...)
		before, stored := a.List(), treetest.Objects(t, good)
		done, failed := 0, 0
		for round := range treetest.Rounds(5, 60) {
			for range 5 {
				i := random.IntN(50)
				a.Write(fmt.Sprintf("d%d/f%d", i%5, i), fmt.Sprint(round, random.Int()))
			}
			a.Write("large", strings.Repeat(fmt.Sprint(round), 1<<20))
			_, err := a.Syncer(retried, options...).Push(t.Context())
			seen := treetest.New(t)
			seen.Pull(steady)
			toOld, toNew := treetest.Differences(before, seen.List()), treetest.Differences(a.List(), seen.List())
			switch {
			case err == nil && toNew != "":
				t.Fatalf("a successful push has not stored everything (-want +got):\n%s", toNew)
			case err == nil:
				done++
			case !isFault(err):
				t.Fatalf("code = %q, want one of a fault (error: %v)", schemas.CodeOf(err), err)
			case toOld != "" && toNew != "":
				t.Fatalf("a failed push left neither the old tree nor the new one (error: %v)", err)
			case toOld == "" && !slices.Equal(treetest.Objects(t, good), stored):
				t.Fatalf("a failed push changed objects (error: %v, -want +got):\n%s", err, treetest.Differences(stored, treetest.Objects(t, good)))
			case errors.Is(err, schemas.ErrUnavailable):
				failed++
			}
			a.Push(good, options...)
			before, stored = a.List(), treetest.Objects(t, good)
			b := treetest.New(t)
			if _, err := b.Syncer(retried).Pull(t.Context()); err == nil {
				treetest.Same(t, a, b)
			} else if !isFault(err) {
				t.Fatalf("code = %q, want one of a fault (error: %v)", schemas.CodeOf(err), err)
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

// isFault reports whether an error is one that the proxy may cause. In the plain layout a pull takes content that was damaged on its
// way for that of another tool.
func isFault(err error) bool {
	return errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDamaged) || errors.Is(err, schemas.ErrConflict)
}

// TestRedirectChangesNothing answers all requests after the first few with the redirect of a bucket that is elsewhere.
func TestRedirectChangesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s *gateway.Server, options []treetest.Option) {
		treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
			for served := range int64(6) {
				prefix, a := fmt.Sprint(t.Name(), served), treetest.New(t)
				good, to := openAt(t, s, prefix), forward(t, s)
				a.Write("f", "1")
				a.Push(good, append(options, o)...)
				before := treetest.Objects(t, good)
				a.Write("f", "2")
				var seen atomic.Int64
				moved := behind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if seen.Add(1) <= served {
						to.ServeHTTP(w, r)
						return
					}
					w.WriteHeader(http.StatusMovedPermanently)
					fmt.Fprint(w, "<Error><Code>PermanentRedirect</Code><Message>the bucket is elsewhere</Message></Error>")
				}), prefix, time.Minute)
				_, pushed := a.Syncer(moved, options...).Push(t.Context())
				if _, err := treetest.New(t).Syncer(moved).Pull(t.Context()); err == nil {
					t.Error("a pull that is redirected succeeded")
				}
				old := treetest.Differences(before, treetest.Objects(t, good)) == ""
				if (pushed == nil || !old) && !slices.Equal(pulled(t, good).List(), a.List()) {
					t.Errorf("after %d requests, the store does not have the new tree (error: %v)", served, pushed)
				}
				a.Push(good, options...)
				treetest.Same(t, a, pulled(t, good))
			}
		})
	})
}

func TestConcurrentPushesLoseNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s *gateway.Server, options []treetest.Option) {
		if len(options) > 0 {
			t.Skip("the server ignores conditions")
		}
		treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
			treetest.ConcurrentPushes(t, objectstore.Retry(openAt(t, s, t.Name()), objectstore.RetryPolicy{}), o)
		})
	})
}
