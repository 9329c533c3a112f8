package events

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 15: one slow answer of JetStream ended a reader. The first read, too, is tried again, and continues where it was.
func TestFirstReadIsTriedAgain(t *testing.T) {
	tries, got := 0, []int{}
	open := func() bool { return false }
	err := firstRead(testkit.Context(t), open, func(_ context.Context, fn func(int) error) error {
		tries++
		if err := fn(tries); err != nil || tries == 2 {
			return err
		}
		return wrap(nats.ErrTimeout, "read")
	}, func(n int) error {
		got = append(got, n)
		return nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "read", got, []int{1, 2})
	// A stream that has been read from is there: its server has restarted.
	err = firstRead(testkit.Context(t), open, func(_ context.Context, fn func(int) error) error {
		if tries++; tries == 4 {
			return nil
		}
		return errors.Join(fn(tries), noStream("EVT"))
	}, func(int) error { return nil })
	testkit.Must(t, err)
	testkit.Equal(t, "tries", tries, 4)
	own := errors.New("of the callback")
	ctx, cancel := context.WithCancel(t.Context())
	for _, v := range []struct {
		name string
		read error
		want error
		end  func()
	}{
		{"no stream", noStream("EVT"), errNoStream, func() {}},
		{"not transient", schemas.Errorf(schemas.CodeInternal, "no"), &schemas.Error{Code: schemas.CodeInternal}, func() {}},
		{"of the callback", markCallback(own), own, func() {}},
		{"the context ends", wrap(nats.ErrTimeout, "read"), nats.ErrTimeout, cancel},
	} {
		err := firstRead(ctx, open, func(context.Context, func(int) error) error {
			v.end()
			return v.read
		}, func(int) error { return nil })
		if !errors.Is(err, v.want) {
			t.Errorf("%s: error = %v, want %v", v.name, err, v.want)
		}
	}
}

// A reader without a stream says so at once, and one of a stream that does not answer waits until it does.
func TestReaderWaitsForItsStream(t *testing.T) {
	n := newNode(t, true)
	c := n.connect()
	read := func() error {
		_, err := c.ReadEvents(testkit.Context(t), Filter{}, 1, func(*schemas.Event) error { return nil })
		return err
	}
	log := func() error {
		_, err := c.ReadLog(testkit.Context(t), ref("t", "p"), "", 1, 0, func(schemas.Chunk) error { return nil })
		return err
	}
	testkit.WantCode(t, read(), schemas.CodeUnavailable)
	testkit.WantCode(t, log(), schemas.CodeUnavailable)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{Partitions: 1}))
	n.server.Close()
	ended := make(chan error, 2)
	go func() { ended <- read() }()
	go func() { ended <- log() }()
	n.start()
	testkit.Must(t, <-ended)
	testkit.Must(t, <-ended)
}
