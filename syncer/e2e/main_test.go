package e2e

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/s3store"
)

var server *gateway.Server

func TestMain(m *testing.M) {
	gateway.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gateway-")
	if err != nil {
		return testkit.Fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": gateway.AccessKey, "AWS_SECRET_ACCESS_KEY": gateway.SecretKey, "AWS_REGION": "us-east-1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return testkit.Fail(err)
		}
	}
	if server, err = gateway.Start(dir); err != nil {
		return testkit.Fail(err)
	}
	defer func() { _ = server.Stop() }()
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		return testkit.Fail(err)
	}
	return 0
}

func open(t *testing.T, prefix string) *s3store.Store {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	s, err := s3store.Open(t.Context(), s3store.Options{
		Bucket: gateway.Bucket, Prefix: prefix, Endpoint: server.Endpoint, Client: &http.Client{Transport: transport},
	})
	testkit.Must(t, err)
	return s
}
