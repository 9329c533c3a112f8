package s3store_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// client closes its connections when the test ends.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func credentials(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
	} {
		t.Setenv(name, value)
	}
}

func open(t *testing.T, endpoint string) *s3store.Store {
	t.Helper()
	s, err := s3store.Open(t.Context(), s3store.Options{Bucket: "b", Prefix: "some/prefix", Endpoint: endpoint, Client: client(t)})
	testkit.Must(t, err)
	return s
}

func TestStoreConforms(t *testing.T) {
	credentials(t)
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		backend := s3mem.New()
		testkit.Must(t, backend.CreateBucket("b"))
		server := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(server.Close)
		return open(t, server.URL)
	})
}

func TestErrorsHaveCodes(t *testing.T) {
	credentials(t)
	for status, want := range map[int]error{
		http.StatusForbidden: schemas.ErrPermissionDenied, http.StatusNotFound: schemas.ErrNotFound,
		http.StatusPreconditionFailed: schemas.ErrConflict, http.StatusConflict: schemas.ErrConflict,
		http.StatusInternalServerError: schemas.ErrUnavailable, http.StatusServiceUnavailable: schemas.ErrUnavailable,
		http.StatusTooManyRequests: schemas.ErrUnavailable, http.StatusBadRequest: schemas.ErrInvalidArgument,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		if _, err := open(t, server.URL).Stat(t.Context(), "k"); !errors.Is(err, want) {
			t.Errorf("status %d: error = %v, want %v", status, err, want)
		}
		server.Close()
	}
	for name, want := range map[string]error{
		"NoSuchKey": schemas.ErrNotFound, "NoSuchBucket": schemas.ErrInvalidArgument, "NoSuchTenant": schemas.ErrInvalidArgument,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("<Error><Code>" + name + "</Code></Error>")) // a failed write fails the request
		}))
		if _, _, err := open(t, server.URL).Get(t.Context(), "k", objectstore.Range{}, nil); !errors.Is(err, want) {
			t.Errorf("%s: error = %v, want %v", name, err, want)
		}
		server.Close()
	}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := open(t, server.URL).Stat(t.Context(), "k")
	testkit.WantCode(t, err, schemas.CodeUnavailable)
}

func TestMissingCredentialsAreUnauthenticated(t *testing.T) {
	credentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	_, err := open(t, "http://127.0.0.1:1").Stat(t.Context(), "k")
	testkit.WantCode(t, err, schemas.CodeUnauthenticated)
}
