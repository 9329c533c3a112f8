package s3store_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
)

// Ten minutes 11: an error has the server's words, or the reason why there was no answer, and none of the SDK's layers.
func TestErrorsAreReadable(t *testing.T) {
	credentials(t)
	denied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>")) // a failed write fails the request
	}))
	defer denied.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	check := func(s *s3store.Store, want string) {
		t.Helper()
		_, _, err := s.Get(t.Context(), "k", objectstore.Range{}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "s3: ") || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "operation error") {
			t.Errorf("error = %v, want one that ends with %q", err, want)
		}
	}
	check(open(t, denied.URL), `"k": AccessDenied: not yours`)
	check(open(t, gone.URL), "check the endpoint: \"k\": dial tcp "+strings.TrimPrefix(gone.URL, "http://")+": connect: connection refused")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	check(open(t, gone.URL), `"k": there are none, or they could not be read`)
}
