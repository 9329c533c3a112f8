package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/state"
)

// rounds returns the number of rounds of a chaos test.
func rounds(short, long int) int {
	if os.Getenv("SLUICE_CHAOS") != "" {
		return long
	}
	return short
}

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

func write(t *testing.T, dir, name, data string) {
	t.Helper()
	path := filepath.Join(dir, name)
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.Must(t, os.WriteFile(path, []byte(data), 0o644))
}

// files returns a line for each file: its path, its size and a digest.
func files(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), state.ReservedName) {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %d %x\n", strings.TrimPrefix(path, dir), len(data), sha256.Sum256(data))
		return err
	})
	testkit.Must(t, err)
	return all.String()
}

// objects returns what other tools see in the store, with tokens: everything except Sluice's own, but with the state.
func objects(t *testing.T, s syncer.Store) string {
	t.Helper()
	var all strings.Builder
	for info, err := range s.List(t.Context(), "") {
		testkit.Must(t, err)
		if !strings.HasPrefix(info.Key, state.ReservedName+".d/") {
			fmt.Fprintln(&all, info.Key, info.Token)
		}
	}
	return all.String()
}

// mustSync runs a push or a pull.
func mustSync(t *testing.T, op func(context.Context) (*syncer.Report, error)) {
	t.Helper()
	r, err := op(t.Context())
	if err != nil {
		t.Fatalf("%v (report: %+v)", err, r)
	}
}

func newSyncer(t *testing.T, dir string, store syncer.Store, o ...func(*syncer.Config)) *syncer.Syncer {
	t.Helper()
	cfg := syncer.Config{Root: dir, Store: store, Remote: "s3://test"}
	for _, o := range o {
		o(&cfg)
	}
	s, err := syncer.New(cfg)
	testkit.Must(t, err)
	return s
}

func TestSyncSurvivesServerFaults(t *testing.T) {
	for _, layout := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(layout), func(t *testing.T) { serverFaults(t, layout) })
	}
}

func serverFaults(t *testing.T, layout syncer.Layout) {
	first := func(c *syncer.Config) { c.Layout = layout }
	target, err := url.Parse(server.Endpoint)
	testkit.Must(t, err)
	random := rand.New(rand.NewPCG(7, 8))
	behind := &http.Transport{}
	defer behind.CloseIdleConnections()
	proxy := &faultyProxy{share: 0.2, random: random, to: &httputil.ReverseProxy{
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
		a := t.TempDir()
		for i := range 50 {
			write(t, a, fmt.Sprintf("d%d/f%d", i%5, i), strings.Repeat(fmt.Sprint(i), 500))
		}
		mustSync(t, newSyncer(t, a, good, first).Push)
		before, stored := files(t, a), objects(t, good)
		done, failed := 0, 0
		for round := range rounds(8, 60) {
			for range 5 {
				i := random.IntN(50)
				write(t, a, fmt.Sprintf("d%d/f%d", i%5, i), fmt.Sprint(round, random.Int()))
			}
			write(t, a, "large", strings.Repeat(fmt.Sprint(round), 1<<20))
			_, err := newSyncer(t, a, retried).Push(t.Context())
			seen := t.TempDir()
			mustSync(t, newSyncer(t, seen, good).Pull)
			switch got := files(t, seen); {
			case err == nil && got != files(t, a):
				t.Fatal("a successful push has not stored everything")
			case err == nil:
				done++
			case schemas.CodeOf(err) != schemas.CodeUnavailable:
				t.Fatalf("code = %q, want unavailable (error: %v)", schemas.CodeOf(err), err)
			case got != before && got != files(t, a):
				t.Fatalf("a failed push left neither the old tree nor the new one (error: %v)", err)
			case got == before && objects(t, good) != stored:
				t.Fatalf("a failed push changed objects (error: %v); before:\n%s\nafter:\n%s", err, stored, objects(t, good))
			default:
				failed++
			}
			mustSync(t, newSyncer(t, a, good).Push)
			before, stored = files(t, a), objects(t, good)
			b := t.TempDir()
			if _, err := newSyncer(t, b, retried).Pull(t.Context()); err == nil && files(t, b) != before {
				t.Fatal("a successful pull has not fetched everything")
			} else if err != nil && schemas.CodeOf(err) != schemas.CodeUnavailable {
				t.Fatalf("code = %q, want unavailable (error: %v)", schemas.CodeOf(err), err)
			}
			for _, dir := range []string{seen, b} {
				testkit.Must(t, os.RemoveAll(dir))
			}
		}
		t.Logf("%d attempts for each request: %d pushes succeeded, %d failed; faults by kind %v", attempts, done, failed, proxy.kinds)
		if attempts == 12 && failed > 0 {
			t.Errorf("%d pushes failed with %d attempts for each request, want none", failed, attempts)
		}
	}
}

// TestConcurrentPushesLoseNothing has 16 writers push to one prefix of a real server at once.
func TestConcurrentPushesLoseNothing(t *testing.T) {
	for _, layout := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(layout), func(t *testing.T) { manyWriters(t, layout) })
	}
}

func manyWriters(t *testing.T, layout syncer.Layout) {
	first := func(c *syncer.Config) { c.Layout = layout }
	const writers = 16
	store := objectstore.Retry(open(t, t.Name()), objectstore.RetryPolicy{})
	dirs := make([]string, writers)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	write(t, dirs[0], "shared", "base")
	mustSync(t, newSyncer(t, dirs[0], store, first).Push)
	remote := func(c *syncer.Config) { c.OnConflict = syncer.ConflictRemote }
	for _, dir := range dirs {
		mustSync(t, newSyncer(t, dir, store).Pull)
	}
	for round := range rounds(3, 50) {
		errs := make([]error, writers)
		var group sync.WaitGroup
		for i, dir := range dirs {
			write(t, dir, fmt.Sprint("own-", i), fmt.Sprintf("round %d of %d", round, i))
			write(t, dir, "shared", fmt.Sprintf("round %d by %d", round, i))
			group.Go(func() { _, errs[i] = newSyncer(t, dir, store).Push(t.Context()) })
		}
		group.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: the pushes of both %d and %d succeeded, want one", round, winner, i)
			case err == nil:
				winner = i
			case schemas.CodeOf(err) != schemas.CodeConflict:
				t.Fatalf("round %d, writer %d: code = %q, want conflict (error: %v)", round, i, schemas.CodeOf(err), err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: no push succeeded, want one", round)
		}
		for i, dir := range dirs { // the others take the winner's shared file, all at once
			if i == winner {
				continue
			}
			group.Go(func() {
				if _, err := newSyncer(t, dir, store, remote).Pull(t.Context()); err != nil {
					t.Errorf("round %d, writer %d: %v", round, i, err)
				}
				if _, err := newSyncer(t, dir, store).Push(t.Context()); err != nil {
					t.Errorf("round %d, writer %d: %v", round, i, err)
				}
			})
		}
		group.Wait()
		for i, dir := range dirs {
			mustSync(t, newSyncer(t, dir, store).Pull)
			shared, err := os.ReadFile(filepath.Join(dir, "shared"))
			testkit.Must(t, err)
			testkit.Equal(t, "shared file", string(shared), fmt.Sprintf("round %d by %d", round, winner))
			if got := files(t, dir); got != files(t, dirs[0]) {
				t.Fatalf("round %d: writer %d has\n%s\nwant\n%s", round, i, got, files(t, dirs[0]))
			}
			for k := range dirs {
				if own, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("own-", k))); err != nil || string(own) != fmt.Sprintf("round %d of %d", round, k) {
					t.Fatalf("round %d: writer %d has %q in the file of writer %d (error: %v)", round, i, own, k, err)
				}
			}
		}
	}
}
