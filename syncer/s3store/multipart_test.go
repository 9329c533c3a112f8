package s3store_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// partServer is an S3 server that counts the requests of uploads in parts.
type partServer struct {
	http.Handler
	// before sees each request with the number of its kind so far, and reports whether it has answered it.
	before func(w http.ResponseWriter, r *http.Request, kind string, n int) bool

	mu         sync.Mutex
	seen       map[string]int
	flying, at int // part requests now, and the most at once
}

func kindOf(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("uploads"):
		return "begin"
	case !q.Has("uploadId"):
		return r.Method
	}
	return map[string]string{http.MethodPut: "part", http.MethodPost: "complete", http.MethodDelete: "abort"}[r.Method]
}

func (s *partServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := kindOf(r)
	s.mu.Lock()
	s.seen[kind]++
	n := s.seen[kind]
	if kind == "part" {
		s.flying++
		s.at = max(s.at, s.flying)
	}
	s.mu.Unlock()
	if s.before == nil || !s.before(w, r, kind, n) {
		s.Handler.ServeHTTP(w, r)
	}
	if kind == "part" {
		s.mu.Lock()
		s.flying--
		s.mu.Unlock()
	}
}

// openParts returns a store that repeats requests, and its server.
func openParts(t *testing.T) (objectstore.Store, *partServer) {
	t.Helper()
	credentials(t)
	backend := s3mem.New()
	testkit.Must(t, backend.CreateBucket("b"))
	s := &partServer{Handler: gofakes3.New(backend).Server(), seen: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return objectstore.Retry(open(t, server.URL), objectstore.RetryPolicy{Attempts: 3, First: time.Millisecond}), s
}

// threeParts is content of three parts.
func threeParts() []byte {
	data := make([]byte, 2*objectstore.PartsFrom+3)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	return data
}

func wantStored(t *testing.T, s objectstore.Store, key string, want []byte) {
	t.Helper()
	got, _, err := s.Get(t.Context(), key, objectstore.Range{}, nil)
	testkit.Must(t, err)
	if string(got) != string(want) {
		t.Errorf("Get returned other bytes (%d) than were stored (%d)", len(got), len(want))
	}
}

// TestFailedPartIsRepeatedAlone refuses one part once: the others are not sent again. Sync 10.
func TestFailedPartIsRepeatedAlone(t *testing.T) {
	s, server := openParts(t)
	server.before = func(w http.ResponseWriter, r *http.Request, kind string, n int) bool {
		if kind != "part" || n != 2 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	data := threeParts()
	_, err := s.Put(t.Context(), "k", objectstore.Bytes(data), objectstore.Condition{})
	testkit.Must(t, err)
	testkit.Equal(t, "requests", server.seen, map[string]int{"begin": 1, "part": 4, "complete": 1})
	wantStored(t, s, "k", data)
}

// TestFailedUploadIsAborted refuses a part for good, and cancels an upload: the server keeps no parts. Sync 10.
func TestFailedUploadIsAborted(t *testing.T) {
	for name, status := range map[string]int{"refused": http.StatusForbidden, "canceled": 0, "unavailable": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			s, server := openParts(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server.before = func(w http.ResponseWriter, r *http.Request, kind string, _ int) bool {
				if kind != "part" {
					return false
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if status == 0 {
					cancel()
					return false
				}
				w.WriteHeader(status)
				return true
			}
			if _, err := s.Put(ctx, "k", objectstore.Bytes(threeParts()), objectstore.Condition{}); err == nil {
				t.Fatal("Put succeeded, want an error")
			}
			if server.seen["begin"] != 1 || server.seen["abort"] != 1 || server.seen["complete"] != 0 {
				t.Errorf("requests = %v, want one upload, which is aborted and not completed", server.seen)
			}
		})
	}
}

// TestPartsOfAllObjectsAreBounded stores five objects of three parts at once: eight parts are on their way. Sync 10.
func TestPartsOfAllObjectsAreBounded(t *testing.T) {
	s, server := openParts(t)
	full := make(chan struct{})
	server.before = func(_ http.ResponseWriter, _ *http.Request, kind string, n int) bool {
		if kind == "part" && n == 8 {
			close(full)
		}
		if kind == "part" && n <= 8 {
			<-full
		}
		return false
	}
	data := threeParts()
	var group sync.WaitGroup
	for _, key := range []string{"1", "2", "3", "4", "5"} {
		group.Go(func() {
			if _, err := s.Put(t.Context(), key, objectstore.Bytes(data), objectstore.Condition{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	testkit.Equal(t, "the most parts at once", server.at, 8)
}

// inOrder fails when content is read twice or out of order.
type inOrder struct {
	t    *testing.T
	data []byte
	next int64
}

func (r *inOrder) ReadAt(p []byte, at int64) (int, error) {
	if at != r.next {
		r.t.Errorf("a read at %d, want %d", at, r.next)
	}
	n := copy(p, r.data[at:])
	if r.next = at + int64(n); n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestSlowContentIsReadOnce has content of which each read may be a request. Sync 10.
func TestSlowContentIsReadOnce(t *testing.T) {
	s, _ := openParts(t)
	data := threeParts()
	c := objectstore.Content{Reader: &inOrder{t: t, data: data}, Size: int64(len(data)), Slow: true}
	_, err := s.Put(t.Context(), "k", c, objectstore.Condition{})
	testkit.Must(t, err)
	wantStored(t, s, "k", data)
}

// TestLostEndOfAnUpload loses the response that an upload was completed: a conditional Put is a conflict, as it is of content in one
// request, and any other is repeated. Sync 10.
func TestLostEndOfAnUpload(t *testing.T) {
	s, server := openParts(t)
	server.before = func(w http.ResponseWriter, r *http.Request, kind string, n int) bool {
		if kind != "complete" || n > 1 {
			return false
		}
		server.Handler.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	data := threeParts()
	_, err := s.Put(t.Context(), "k", objectstore.Bytes(data), objectstore.Condition{Absent: true})
	testkit.WantCode(t, err, schemas.CodeConflict)
	wantStored(t, s, "k", data)

	clear(server.seen)
	_, err = s.Put(t.Context(), "other", objectstore.Bytes(data), objectstore.Condition{})
	testkit.Must(t, err)
	wantStored(t, s, "other", data)
	testkit.Equal(t, "uploads begun", server.seen["begin"], 2)
}

// TestServerWithoutCopies has a server that takes the copy of a part for an empty part: the content is sent. Sync 10.
func TestServerWithoutCopies(t *testing.T) {
	s, server := openParts(t)
	var mu sync.Mutex
	received := map[string]bool{}
	server.before = func(w http.ResponseWriter, r *http.Request, kind string, _ int) bool {
		if kind != "part" {
			return false
		}
		part := r.URL.Query().Get("uploadId") + "/" + r.URL.Query().Get("partNumber")
		mu.Lock()
		again := received[part]
		received[part] = true
		mu.Unlock()
		if again { // as rclone's server, which takes a copy for an empty part and keeps it
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNotImplemented)
		}
		return again
	}
	data := threeParts()
	half := objectstore.PartsFrom + 1
	c := objectstore.Bytes(data)
	for key, part := range map[string][]byte{"1": data[:half], "2": data[half:]} {
		_, err := s.Put(t.Context(), key, objectstore.Bytes(part), objectstore.Condition{})
		testkit.Must(t, err)
	}
	c.From = []objectstore.Info{{Key: "1"}, {Key: "2"}}
	_, err := s.Put(t.Context(), "k", c, objectstore.Condition{})
	testkit.Must(t, err)
	wantStored(t, s, "k", data)
}

// recorder keeps the uploads that have begun and not ended.
type recorder struct {
	mu  sync.Mutex
	all []objectstore.Upload
}

// Begun implements [objectstore.Uploads].
func (r *recorder) Begun(u objectstore.Upload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, u)
}

// Ended implements [objectstore.Uploads].
func (r *recorder) Ended(u objectstore.Upload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(other objectstore.Upload) bool { return other == u })
}

// TestUploadsAreRecorded records an upload before its first part, until it is completed or aborted. One of which the abort is refused
// stays, and can be aborted later. Sync 10.
func TestUploadsAreRecorded(t *testing.T) {
	s, server := openParts(t)
	r, refused := &recorder{}, false
	server.before = func(w http.ResponseWriter, req *http.Request, kind string, _ int) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if kind == "part" && len(r.all) != 1 {
			t.Errorf("recorded while parts are sent: %v, want the upload", r.all)
		}
		if refused && kind != "begin" {
			_, _ = io.Copy(io.Discard, req.Body)
			w.WriteHeader(http.StatusForbidden)
		}
		return refused && kind != "begin"
	}
	ctx := objectstore.WithUploads(t.Context(), r)
	_, err := s.Put(ctx, "k", objectstore.Bytes(threeParts()), objectstore.Condition{})
	testkit.Must(t, err)
	testkit.Equal(t, "recorded in the end", len(r.all), 0)

	refused = true
	_, err = s.Put(ctx, "k", objectstore.Bytes(threeParts()), objectstore.Condition{})
	testkit.WantCode(t, err, schemas.CodePermissionDenied)
	if len(r.all) != 1 || r.all[0].Key != "k" || r.all[0].ID == "" {
		t.Fatalf("recorded after a refused abort: %v, want the upload", r.all)
	}
	refused = false
	for range 2 { // the second one does not know the upload
		testkit.Must(t, s.AbortUpload(ctx, r.all[0]))
	}
}
