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
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/s3store"
)

// rounds is how often a test that breaks things does so: more with SLUICE_CHAOS set.
func rounds(short, long int) int {
	if os.Getenv("SLUICE_CHAOS") != "" {
		return long
	}
	return short
}

// troubled stands before the server and answers a share of the requests with 500, 503 SlowDown, nothing for too long,
// or a connection that is cut: before the request has been served, or after.
type troubled struct {
	share float64
	to    *httputil.ReverseProxy

	mu     sync.Mutex
	random *rand.Rand
	kinds  [6]int
}

func (p *troubled) draw() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random.Float64() >= p.share {
		return -1
	}
	kind := p.random.IntN(len(p.kinds))
	p.kinds[kind]++
	return kind
}

func (p *troubled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch p.draw() {
	case 0:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "<Error><Code>InternalError</Code><Message>try again</Message></Error>")
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "<Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>")
	case 2:
		cut(w)
	case 3: // served, and the answer lost
		p.to.ServeHTTP(httptest.NewRecorder(), r)
		cut(w)
	case 4: // served, and half of the answer lost
		rec := httptest.NewRecorder()
		p.to.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
		cut(w)
	case 5: // nothing, until the client has had enough
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	default:
		p.to.ServeHTTP(w, r)
	}
}

// cut ends the connection in mid-answer.
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), syncer.ReservedName) {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %x\n", strings.TrimPrefix(path, dir), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// objects are what other tools see in the store: all but what is Sluice's own, and the state.
func objects(t *testing.T, s syncer.Store) string {
	t.Helper()
	var all strings.Builder
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(info.Key, syncer.ReservedName+".d/") {
			fmt.Fprintln(&all, info.Key, info.Token)
		}
	}
	return all.String()
}

func newSyncer(t *testing.T, dir string, store syncer.Store, o ...func(*syncer.Config)) *syncer.Syncer {
	t.Helper()
	cfg := syncer.Config{Root: dir, Store: store, Remote: "s3://test"}
	for _, o := range o {
		o(&cfg)
	}
	s, err := syncer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestATroubledServer(t *testing.T) {
	for _, layout := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(layout), func(t *testing.T) { troubledServer(t, layout) })
	}
}

func troubledServer(t *testing.T, layout syncer.Layout) {
	first := func(c *syncer.Config) { c.Layout = layout }
	target, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 8))
	behind := &http.Transport{}
	defer behind.CloseIdleConnections()
	proxy := &troubled{share: 0.2, random: random, to: &httputil.ReverseProxy{
		Transport: behind,
		Rewrite: func(r *httputil.ProxyRequest) { // the signature is over the host's name
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
		if err != nil {
			t.Fatal(err)
		}
		good := open(t, fmt.Sprint(t.Name(), attempts))
		retried := syncer.Retry(bad, syncer.RetryPolicy{Attempts: attempts, First: time.Millisecond, Longest: 5 * time.Millisecond})
		a := t.TempDir()
		for i := range 50 {
			write(t, a, fmt.Sprintf("d%d/f%d", i%5, i), strings.Repeat(fmt.Sprint(i), 500))
		}
		if _, err := newSyncer(t, a, good, first).Push(t.Context()); err != nil {
			t.Fatal(err)
		}
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
			if _, err := newSyncer(t, seen, good).Pull(t.Context()); err != nil {
				t.Fatal(err)
			}
			switch got := files(t, seen); {
			case err == nil && got != files(t, a):
				t.Fatal("a push that was done has not stored everything")
			case err == nil:
				done++
			case schemas.CodeOf(err) != schemas.CodeUnavailable:
				t.Fatalf("not clear: %v", err)
			case got != before && got != files(t, a):
				t.Fatalf("a push that failed has left something else: %v", err)
			case got == before && objects(t, good) != stored:
				t.Fatalf("a push that failed has left other objects: %v\n%s\n%s", err, stored, objects(t, good))
			default:
				failed++
			}
			if _, err := newSyncer(t, a, good).Push(t.Context()); err != nil {
				t.Fatal(err)
			}
			before, stored = files(t, a), objects(t, good)
			b := t.TempDir()
			if _, err := newSyncer(t, b, retried).Pull(t.Context()); err == nil && files(t, b) != before {
				t.Fatal("a pull that was done has not brought everything")
			} else if err != nil && schemas.CodeOf(err) != schemas.CodeUnavailable {
				t.Fatalf("not clear: %v", err)
			}
			for _, dir := range []string{seen, b} {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Logf("%d tries a request: %d pushes done, %d failed; trouble by kind %v", attempts, done, failed, proxy.kinds)
		if attempts == 12 && failed > 0 {
			t.Errorf("%d pushes failed in spite of %d tries a request", failed, attempts)
		}
	}
}

// TestManyWriters has 16 writers push to one prefix of a real server at once.
func TestManyWriters(t *testing.T) {
	for _, layout := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(layout), func(t *testing.T) { manyWriters(t, layout) })
	}
}

func manyWriters(t *testing.T, layout syncer.Layout) {
	first := func(c *syncer.Config) { c.Layout = layout }
	const writers = 16
	store := syncer.Retry(open(t, t.Name()), syncer.RetryPolicy{})
	dirs := make([]string, writers)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	write(t, dirs[0], "shared", "base")
	if _, err := newSyncer(t, dirs[0], store, first).Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	remote := func(c *syncer.Config) { c.OnConflict = syncer.ConflictRemote }
	for _, dir := range dirs {
		if _, err := newSyncer(t, dir, store).Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
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
				t.Fatalf("round %d: both %d and %d were told that they have won", round, winner, i)
			case err == nil:
				winner = i
			case schemas.CodeOf(err) != schemas.CodeConflict:
				t.Fatalf("round %d, writer %d: %v", round, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody has won", round)
		}
		for i, dir := range dirs { // the others give in on the shared file, all at once again
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
			if _, err := newSyncer(t, dir, store).Pull(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := files(t, dir); got != files(t, dirs[0]) || !strings.Contains(got, fmt.Sprintf("%x", fmt.Sprintf("round %d by %d", round, winner))) {
				t.Fatalf("round %d: writer %d has\n%s", round, i, got)
			}
			for k := range dirs {
				if own, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("own-", k))); err != nil || string(own) != fmt.Sprintf("round %d of %d", round, k) {
					t.Fatalf("round %d: %d's own file is %q with %d, %v", round, k, own, i, err)
				}
			}
		}
	}
}
