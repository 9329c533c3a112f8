package embedded

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A server that was replaced listens where it did, has what was stored, and handles each request once.
func TestRestartedServer(t *testing.T) {
	s, err := Start(Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "secret"})
	testkit.Must(t, err)
	t.Cleanup(s.Close)
	ctx := testkit.Context(t)
	url := s.URL()
	back := make(chan struct{}, 16)
	nc, err := nats.Connect(url, nats.Token("secret"), nats.MaxReconnects(-1), nats.ReconnectWait(1),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	testkit.Must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	testkit.Must(t, err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	testkit.Must(t, err)
	_, err = js.Publish(ctx, "s", []byte("stored"))
	testkit.Must(t, err)

	asked := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { // requests go on while the server is replaced
		for {
			select {
			case <-asked:
				return
			default:
				_, _ = nc.Request("$JS.API.INFO", nil, 100*time.Millisecond)
			}
		}
	})
	testkit.Must(t, s.restart())
	<-back
	close(asked)
	asking.Wait()

	testkit.Equal(t, "URL", s.URL(), url)
	m, err := js.Stream(ctx, "S")
	testkit.Must(t, err)
	got, err := m.GetMsg(ctx, 1)
	testkit.Must(t, err)
	testkit.Equal(t, "message", string(got.Data), "stored")
	handled, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.API")
	testkit.Must(t, err)
	const requests, subject = 100, "$JS.API.STREAM.NAMES"
	for range requests {
		_, err := nc.RequestWithContext(ctx, subject, nil)
		testkit.Must(t, err)
	}
	testkit.Must(t, nc.FlushWithContext(ctx))
	pending, _, err := handled.Pending()
	testkit.Must(t, err)
	answers := 0
	for range pending {
		m, err := handled.NextMsg(0)
		testkit.Must(t, err)
		if strings.Contains(string(m.Data), subject) { // not one that was asked before, and that no one waits for any more
			answers++
		}
	}
	if answers > requests {
		t.Errorf("%d requests were handled %d times", requests, answers)
	}
}

// A server that cannot be replaced reports why, once, and again after it could be.
func TestFailedRestartIsReported(t *testing.T) {
	dir := t.TempDir()
	var warnings []error
	s, err := Start(Config{Dir: filepath.Join(dir, "nats"), Warn: func(err error) { warnings = append(warnings, err) }})
	testkit.Must(t, err)
	t.Cleanup(s.Close)
	for round := range 2 {
		s.cfg.CertFile, s.cfg.KeyFile = filepath.Join(dir, "gone.crt"), filepath.Join(dir, "gone.key")
		s.replace()
		s.replace()
		testkit.Equal(t, "warnings", len(warnings), round+1)
		testkit.WantCode(t, warnings[round], schemas.CodeInvalidArgument)
		testkit.Contains(t, "warning", warnings[round].Error(), "gone.crt")
		s.cfg.CertFile, s.cfg.KeyFile = "", ""
		s.replace()
		testkit.Equal(t, "has JetStream", s.current().JetStreamEnabled(), true)
	}
}
