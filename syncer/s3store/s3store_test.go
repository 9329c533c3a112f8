package s3store_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/s3store"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client has no connections left over once its test ends.
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
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	credentials(t)
	storetest.Run(t, func(t *testing.T) syncer.Store {
		backend := s3mem.New()
		if err := backend.CreateBucket("b"); err != nil {
			t.Fatal(err)
		}
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
			t.Errorf("status %d: %v, want %v", status, err, want)
		}
		server.Close()
	}
	for name, want := range map[string]error{
		"NoSuchKey": schemas.ErrNotFound, "NoSuchBucket": schemas.ErrInvalidArgument, "NoSuchTenant": schemas.ErrInvalidArgument,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("<Error><Code>" + name + "</Code></Error>")) // else the client says so
		}))
		if _, _, err := open(t, server.URL).Get(t.Context(), "k", syncer.Range{}, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		server.Close()
	}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	if _, err := open(t, server.URL).Stat(t.Context(), "k"); !errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("a server that is gone: %v", err)
	}
}

func TestNoCredentialsIsSaid(t *testing.T) {
	credentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if _, err := open(t, "http://127.0.0.1:1").Stat(context.Background(), "k"); !errors.Is(err, schemas.ErrUnauthenticated) {
		t.Errorf("%v, want unauthenticated", err)
	}
}
