package embedded_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, testkit.Programs{serveProgram: serve}) }

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(cfg)
	testkit.Must(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestInvalidConfigIsRejected(t *testing.T) {
	for name, cfg := range map[string]embedded.Config{
		"no folder":  {},
		"no token":   {Dir: "x", Listen: "127.0.0.1:0"},
		"durability": {Dir: "x", Durability: "sometimes"},
	} {
		testkit.WantCode(t, cfg.Validate(), schemas.CodeInvalidArgument)
		if _, err := embedded.Start(cfg); err == nil {
			t.Errorf("%s: Start: error = nil, want one", name)
		}
	}
	_, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "nowhere", Token: "x"})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

func TestClientsNeedTheToken(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "secret"})
	for _, o := range [][]nats.Option{nil, {nats.Token("wrong")}} {
		nc, err := nats.Connect(s.URL(), o...)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("connect with %d options: error = %v, want %v", len(o), err, nats.ErrAuthorization)
		}
		if err == nil {
			nc.Close()
		}
	}
	if nc, err := nats.Connect("", nats.InProcessServer(s)); err == nil {
		t.Error("connect in process without a token: error = nil, want one")
		nc.Close()
	}
	for _, o := range []nats.Option{nats.Compression(false), nats.InProcessServer(s)} {
		nc, err := nats.Connect(s.URL(), nats.Token("secret"), o)
		testkit.Must(t, err)
		nc.Close()
	}
}

func TestServerWithoutAnAddressDoesNotListen(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir()})
	testkit.Equal(t, "URL", s.URL(), "")
	if s.Room() <= 0 {
		t.Errorf("Room = %d, want more than 0", s.Room())
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	testkit.Must(t, err)
	nc.Close()
}

func TestAddressInUseIsRejected(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer func() { _ = l.Close() }()
	_, err = embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: l.Addr().String(), Token: "x"})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
}

func TestFolderBelowAFileIsRejected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	_, err := embedded.Start(embedded.Config{Dir: filepath.Join(file, "nats")})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
}

func TestFolderIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	start(t, embedded.Config{Dir: dir})
	info, err := os.Stat(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "mode", info.Mode().Perm(), os.FileMode(0o700))
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir(), Durability: embedded.DurabilityFsync})
	nc, err := nats.Connect("", nats.InProcessServer(s))
	testkit.Must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	testkit.Must(t, err)
	ctx := testkit.Context(t)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	testkit.Must(t, err)
	_, err = js.Publish(ctx, "s", []byte("synced"))
	testkit.Must(t, err)
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	stop()
	testkit.Must(t, <-ended)
}
