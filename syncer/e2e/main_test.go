package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/s3store"
)

var (
	server  *gateway.Server   // versitygw
	servers []*gateway.Server // all
)

func TestMain(m *testing.M) {
	gateway.Main()
	if len(os.Args) > 1 && os.Args[1] == childProgram {
		os.Exit(syncChild(os.Args[2:]))
	}
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
	kinds := []gateway.Kind{gateway.Versity, gateway.Rclone}
	if gateway.HasMoto() {
		kinds = append(kinds, gateway.Moto)
	}
	for _, kind := range kinds {
		s, err := gateway.Start(kind, filepath.Join(dir, string(kind)))
		if err != nil {
			return testkit.Fail(err)
		}
		defer func() { _ = s.Stop() }()
		servers = append(servers, s)
	}
	server = servers[0]
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		return testkit.Fail(err)
	}
	return 0
}

func open(t *testing.T, prefix string) *s3store.Store { t.Helper(); return openAt(t, server, prefix) }

func openAt(t *testing.T, server *gateway.Server, prefix string) *s3store.Store {
	t.Helper()
	if server.Dir != "" {
		testkit.Must(t, os.MkdirAll(server.Dir, 0o755))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	s, err := s3store.Open(t.Context(), s3store.Options{
		Bucket: gateway.Bucket, Prefix: prefix, Endpoint: server.Endpoint, Client: &http.Client{Transport: transport},
	})
	testkit.Must(t, err)
	return s
}
