package events

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

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
			own, held, letGo := connectSlowEnd(t, n, tt.subscription)
			_, stop := startWorkerOn(t, newPeer(own), "w1", nil)
			t.Cleanup(letGo) // before the worker's end
			var ended sync.WaitGroup
			ended.Go(stop)
			wantAnswerAtTheEnd(t, c, held, letGo, tt.subject, `{"thread":"t"}`)
			ended.Wait()
		})
	}
}

// threadOwner is a worker whose only thread ends with its work.
type threadOwner struct {
	*fakeWorker
	ended chan struct{} // closed once the thread has ended
}

func (threadOwner) Register(context.Context) error { return nil }
func (threadOwner) Fence()                         {}
func (threadOwner) Abandon()                       {}

func (w threadOwner) Run(ctx context.Context) error {
	<-ctx.Done()
	w.listener.Threads.Unsubscribe(schemas.DefaultTenant, "t")
	w.listener.Threads.Unsubscribe(schemas.DefaultTenant, "t") // as a worker that shuts down after it has lost its threads
	close(w.ended)
	return nil
}

// startThreadOwner runs a worker with the thread t on a connection that it closes after its end, and returns what ends it, with a channel
// that is closed once the thread has ended. onControl handles controls.
func startThreadOwner(t *testing.T, own *Conn, onControl func(schemas.Control) error) (stop func(), threadEnded <-chan struct{}) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	i, err := own.Worker().NewIncarnation(ctx, "w1", Lineage{})
	testkit.Must(t, err)
	testkit.Must(t, i.Listener.Threads.Subscribe(ctx, schemas.DefaultTenant, "t"))
	owner := threadOwner{
		&fakeWorker{id: "w1", conn: newPeer(own), listener: i.Listener, received: make(chan schemas.Delivery), onControl: onControl}, make(chan struct{}),
	}
	ready := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := i.Run(ctx, owner, func() { close(ready) }, func(error) {}); err != nil {
			t.Error(err)
		}
		own.Close()
	})
	t.Cleanup(ended.Wait)
	t.Cleanup(stop)
	<-ready
	return stop, owner.ended
}

// A connection is closed once its incarnation has ended: what the server passed on for a thread before is answered.
func TestControlAtTheEndOfAThreadIsAnswered(t *testing.T) {
	n, c := connected(t, true)
	s := c.subjects
	own, held, letGo := connectSlowEnd(t, n, s.ThreadControls(schemas.DefaultTenant, "t"))
	stop, _ := startThreadOwner(t, own, nil)
	t.Cleanup(letGo) // before the worker's end
	stop()
	wantAnswerAtTheEnd(t, c, held, letGo, s.Control(schemas.DefaultTenant, "t", "p1", VerbSignal), `{"signal":"INT"}`)
}

// What has arrived, and waits for its handler, is answered too: to close the connection drops it.
func TestControlThatWaitsAtTheEndOfAThreadIsAnswered(t *testing.T) {
	n, c := connected(t, true)
	own, err := Connect(Options{URL: n.server.URL(), Token: n.cfg.Token})
	testkit.Must(t, err)
	t.Cleanup(own.Close)
	handled, letGo := make(chan struct{}, 2), make(chan struct{})
	stop, threadEnded := startThreadOwner(t, own, func(schemas.Control) error {
		handled <- struct{}{}
		<-letGo
		return nil
	})
	release := sync.OnceFunc(func() { close(letGo) })
	t.Cleanup(release) // before the worker's end
	answers, err := c.nc.SubscribeSync(c.nc.NewInbox())
	testkit.Must(t, err)
	for range cap(handled) {
		testkit.Must(t, c.nc.PublishRequest(c.subjects.Control(schemas.DefaultTenant, "t", "p1", VerbSignal), answers.Subject, []byte(`{"signal":"INT"}`)))
	}
	testkit.Must(t, c.Flush(testkit.Context(t)))
	<-handled
	stop()
	<-threadEnded
	place := c.subjects.API(schemas.DefaultTenant, placeVerb)
	for err = nil; !errors.Is(err, nats.ErrNoResponders); { // the last subscription of the listener
		_, err = c.nc.RequestWithContext(testkit.Context(t), place, []byte("{}"))
	}
	for range 20 { // a worker that does not wait has closed the connection after them
		testkit.Must(t, c.Flush(testkit.Context(t)))
	}
	release()
	for range cap(handled) {
		m, err := answers.NextMsgWithContext(testkit.Context(t))
		testkit.Must(t, err)
		testkit.Equal(t, "status of an answer", m.Header.Get("Status"), "")
	}
}

// connectSlowEnd returns a connection whose server learns the end of one subscription once letGo is called; held is closed before.
func connectSlowEnd(t *testing.T, n *node, subscription string) (c *Conn, held <-chan struct{}, letGo func()) {
	t.Helper()
	end, release := make(chan struct{}), make(chan struct{})
	c, err := Connect(Options{URL: n.server.URL(), Token: n.cfg.Token, Dial: func() (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.cfg.Listen)
		return &slowEnd{Conn: conn, subject: subscription, held: end, release: release}, err
	}})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c, end, sync.OnceFunc(func() { close(release) })
}

// wantAnswerAtTheEnd checks that a request is answered which the server passes on before the end of the subscription has reached it.
func wantAnswerAtTheEnd(t *testing.T, c *peer, held <-chan struct{}, letGo func(), subject, body string) {
	t.Helper()
	select {
	case <-held:
	case <-testkit.Context(t).Done():
		t.Fatal("the subscription does not end")
	}
	answer, err := c.nc.SubscribeSync(c.nc.NewInbox())
	testkit.Must(t, err)
	testkit.Must(t, c.nc.PublishRequest(subject, answer.Subject, []byte(body)))
	testkit.Must(t, c.Flush(testkit.Context(t)))
	letGo()
	m, err := answer.NextMsgWithContext(testkit.Context(t))
	testkit.Must(t, err)
	testkit.Equal(t, "status of the answer", m.Header.Get("Status"), "")
}
