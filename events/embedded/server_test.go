package embedded_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) {
	// The test binary is its own server where it is told a folder: one that can be killed.
	if dir := os.Getenv(dirVariable); dir != "" {
		os.Exit(serve(dir))
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func wantCode(t *testing.T, err error, code schemas.Code) {
	t.Helper()
	if got := schemas.CodeOf(err); got != code {
		t.Fatalf("error %v has the code %q, want %q", err, got, code)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]embedded.Config{
		"no folder":  {},
		"no token":   {Dir: "x", Listen: "127.0.0.1:0"},
		"durability": {Dir: "x", Durability: "sometimes"},
	} {
		wantCode(t, cfg.Validate(), schemas.CodeInvalidArgument)
		if _, err := embedded.Start(cfg); err == nil {
			t.Errorf("%s: it starts", name)
		}
	}
	_, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "nowhere", Token: "x"})
	wantCode(t, err, schemas.CodeInvalidArgument)
}

func TestStrangersNeedTheToken(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "secret"})
	for _, o := range [][]nats.Option{nil, {nats.Token("wrong")}} {
		nc, err := nats.Connect(s.URL(), o...)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("error %v", err)
		}
		if err == nil {
			nc.Close()
		}
	}
	if nc, err := nats.Connect("", nats.InProcessServer(s)); err == nil {
		t.Error("in process it needs no token")
		nc.Close()
	}
	for _, o := range []nats.Option{nats.Compression(false), nats.InProcessServer(s)} {
		nc, err := nats.Connect(s.URL(), nats.Token("secret"), o)
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
}

func TestWithoutAnAddressNothingListens(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir()})
	if s.URL() != "" {
		t.Errorf("it listens on %s", s.URL())
	}
	if s.StoreBytes() <= 0 {
		t.Errorf("the store is bound to %d bytes", s.StoreBytes())
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestTakenAddressIsTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: l.Addr().String(), Token: "x"})
	wantCode(t, err, schemas.CodeUnavailable)
}

func TestFolderThatCannotBeOneIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := embedded.Start(embedded.Config{Dir: filepath.Join(file, "nats")})
	wantCode(t, err, schemas.CodeUnavailable)
}

func TestFolderIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	start(t, embedded.Config{Dir: dir})
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := start(t, embedded.Config{Dir: t.TempDir(), Durability: embedded.DurabilityFsync})
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("synced")); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
