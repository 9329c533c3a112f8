package s3store_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// TestRefusalsAreNamedAtOnce has servers that refuse every request because of the region or the clock, or implement none: the error names
// it after one request. Sync 9.
func TestRefusalsAreNamedAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		status       int
		region, body string
		want         schemas.Code
		text         string
	}{
		"another region signed": {http.StatusBadRequest, "eu-west-1", "AuthorizationHeaderMalformed", schemas.CodeInvalidArgument, `"eu-west-1", set --region`},
		"redirected":            {http.StatusMovedPermanently, "eu-west-1", "PermanentRedirect", schemas.CodeInvalidArgument, `"eu-west-1", set --region`},
		"redirected, no name":   {http.StatusMovedPermanently, "", "", schemas.CodeInvalidArgument, "set --region"},
		"not implemented":       {http.StatusNotImplemented, "", "NotImplemented", schemas.CodeInvalidArgument, "no"},
		"no reason":             {http.StatusBadRequest, "", "", schemas.CodeInvalidArgument, "check the region (--region"},
		"forbidden, no reason":  {http.StatusForbidden, "", "", schemas.CodePermissionDenied, "check the credentials"},
		"clock":                 {http.StatusForbidden, "", "RequestTimeTooSkewed", schemas.CodeUnauthenticated, "the clock of this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			credentials(t)
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				if test.region != "" {
					w.Header().Set("X-Amz-Bucket-Region", test.region)
				}
				w.WriteHeader(test.status)
				if test.body != "" {
					_, _ = w.Write([]byte("<Error><Code>" + test.body + "</Code><Message>no</Message></Error>")) // a failed write fails the request
				}
			}))
			defer server.Close()
			s := objectstore.Retry(open(t, server.URL), objectstore.RetryPolicy{First: time.Millisecond})
			var err error
			if test.body == "" { // as the answer to a HEAD
				_, err = s.Stat(t.Context(), "k")
			} else {
				_, _, err = s.Get(t.Context(), "k", objectstore.Range{}, nil)
			}
			testkit.WantCode(t, err, test.want)
			if err == nil || !strings.Contains(err.Error(), test.text) || requests != 1 {
				t.Errorf("error = %v after %d requests, want one with %q after 1", err, requests, test.text)
			}
		})
	}
}

// versitygw refuses an object whose folder another request removes at that moment: the object is sent again, a few times. Of an upload in
// parts only its end is.
func TestFolderRemovedMeanwhile(t *testing.T) {
	for name, refusals := range map[string]int{"now": 1, "for ever": 100} {
		t.Run(name, func(t *testing.T) {
			wantTries := func(kind string, c objectstore.Content) {
				t.Helper()
				s, server := openParts(t)
				server.before = func(w http.ResponseWriter, r *http.Request, k string, n int) bool {
					if k != kind || n > refusals {
						return false
					}
					_, _ = io.Copy(io.Discard, r.Body) // what it does not read the next request repeats
					w.WriteHeader(http.StatusConflict)
					_, _ = w.Write([]byte("<Error><Code>ExistingObjectIsDirectory</Code><Message>no</Message></Error>")) // a failed write fails the request
					return true
				}
				_, err := s.Put(t.Context(), "folder/k", c, objectstore.Condition{})
				if refusals == 1 {
					testkit.Must(t, err)
					testkit.Equal(t, kind+" requests", server.seen[kind], 2)
					return
				}
				testkit.WantCode(t, err, schemas.CodeConflict)
				testkit.Equal(t, kind+" requests", server.seen[kind], 4)
			}
			wantTries(http.MethodPut, objectstore.Bytes([]byte("content")))
			wantTries("complete", objectstore.Bytes(threeParts()))
		})
	}
}
