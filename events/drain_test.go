package events

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// slowEnd is a connection to a server that holds back the end of one subscription until release is closed.
type slowEnd struct {
	net.Conn
	subject string
	id      string        // of the subscription, once it has begun
	held    chan struct{} // closed once its end is held back
	release chan struct{}
}

func (c *slowEnd) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line))
		switch {
		case len(fields) > 2 && fields[0] == "SUB" && fields[1] == c.subject:
			c.id = fields[len(fields)-1]
		case len(fields) > 1 && fields[0] == "UNSUB" && fields[1] == c.id:
			close(c.held)
			<-c.release
		}
	}
	return c.Conn.Write(b)
}

// A request that the server passes on before it knows that the worker takes no more is answered: its sender would wait for it in vain.
func TestRequestAtTheEndOfAListenerIsAnswered(t *testing.T) {
	n, c := connected(t, true)
	s := c.subjects
	for _, tt := range []struct{ name, subscription, subject string }{
		{"place", s.AnyAPI(placeVerb), s.API(schemas.DefaultTenant, placeVerb)},
		{"clean", s.AnyAPI(cleanVerb), s.API(schemas.DefaultTenant, cleanVerb)},
		{"processes", s.Processes("*", "w1"), s.Processes(schemas.DefaultTenant, "w1")},
		{"workspaces", s.Workspaces("*", "w1"), s.Workspaces(schemas.DefaultTenant, "w1")},
		{"forward", s.WorkerForwards("w1"), s.Forward(schemas.DefaultTenant, "w1", "t", placeVerb)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			held, release := make(chan struct{}), make(chan struct{})
			letGo := sync.OnceFunc(func() { close(release) })
			own, err := Connect(Options{URL: n.server.URL(), Token: n.cfg.Token, Dial: func() (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.cfg.Listen)
				return &slowEnd{Conn: conn, subject: tt.subscription, held: held, release: release}, err
			}})
			testkit.Must(t, err)
			t.Cleanup(own.Close)
			_, stop := startWorkerOn(t, newPeer(own), "w1", nil)
			t.Cleanup(letGo) // before the worker's end
			var ended sync.WaitGroup
			ended.Go(stop)
			select {
			case <-held:
			case <-testkit.Context(t).Done():
				t.Fatal("the listener does not end its subscription")
			}
			answer, err := c.nc.SubscribeSync(c.nc.NewInbox())
			testkit.Must(t, err)
			testkit.Must(t, c.nc.PublishRequest(tt.subject, answer.Subject, []byte(`{"thread":"t"}`)))
			testkit.Must(t, c.Flush(testkit.Context(t)))
			letGo()
			m, err := answer.NextMsgWithContext(testkit.Context(t))
			testkit.Must(t, err)
			testkit.Equal(t, "status of the answer", m.Header.Get("Status"), "")
			ended.Wait()
		})
	}
}
