package events

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Options say how to reach NATS.
type Options struct {
	// URL is one or more server URLs, comma-separated. Default nats://127.0.0.1:4222.
	URL string
	// CredsFile is a NATS credentials file. Default: none.
	CredsFile string
	// Token is the server's token. Default: none.
	Token string
	// Name is shown in the server's list of connections. Default "sluice".
	Name string
	// Cell is the cell token of every subject. Default [schemas.DefaultCell].
	Cell string
	// InProcess connects to a server in this process and makes URL meaningless. Default: none.
	InProcess nats.InProcessConnProvider
	// Dial reaches the server in another way than TCP, such as a unix socket. Default: none.
	Dial func() (net.Conn, error)
	// Wait keeps trying to connect for ever instead of failing at once. It suits a worker that starts beside its server.
	Wait bool
}

// Conn is a connection to a cell. Its methods may be called at the same time.
type Conn struct {
	// Subjects are the cell's.
	Subjects Subjects

	opts  Options
	names names

	// nc carries requests, records and events. bulk carries output, so that a control message never waits behind it.
	nc     *nats.Conn
	js     jetstream.JetStream
	bulk   *nats.Conn
	bulkJS jetstream.JetStream

	inbox *inbox

	partitions int
	leaseTTL   time.Duration
	lease      atomic.Pointer[Lease] // nil where this connection is no worker's
	topology   Topology              // as Ensure was given it
	messages   atomic.Bool           // MSG is known to be there
	deadLetter atomic.Bool           // DLQ is
	recorder   atomic.Pointer[Recorder]

	bucketMu    sync.Mutex
	buckets     map[string]jetstream.KeyValue
	dispatchers map[int]jetstream.Consumer // made by Ensure, not yet read
}

// Connect opens a connection. Errors: unavailable when no server answers, unauthenticated when it refuses the
// credentials, invalid_argument for options that make no sense.
func Connect(o Options) (*Conn, error) {
	if o.URL == "" {
		o.URL = nats.DefaultURL
	}
	if o.Name == "" {
		o.Name = "sluice"
	}
	if o.Cell == "" {
		o.Cell = schemas.DefaultCell
	}
	if err := schemas.CheckID("cell", o.Cell); err != nil {
		return nil, err
	}
	c := &Conn{
		Subjects: NewSubjects(o.Cell), opts: o, names: namesOf(o.Cell),
		buckets: make(map[string]jetstream.KeyValue), dispatchers: make(map[int]jetstream.Consumer), partitions: 4, leaseTTL: 10 * time.Second,
	}
	var err error
	if c.nc, err = o.dial(o.Name); err != nil {
		return nil, err
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithPublishAsyncTimeout(publishTimeout)); err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	// Chunks must not overtake each other: what is written while the connection is down has to fail, and be sent
	// again in order, rather than wait in a buffer behind something that was lost.
	if c.bulk, err = o.dial(o.Name+" output", nats.ReconnectBufSize(-1)); err != nil {
		c.nc.Close()
		return nil, err
	}
	if c.bulkJS, err = jetstream.New(c.bulk, jetstream.WithPublishAsyncMaxPending(4*chunkWindow),
		jetstream.WithPublishAsyncTimeout(publishTimeout)); err != nil {
		c.Close()
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	if c.inbox, err = newInbox(c.nc); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (o Options) dial(name string, extra ...nats.Option) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, time.Second), nats.Timeout(5 * time.Second),
		// Errors reach those they concern; the default handler would print to standard error behind the caller's back.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if o.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(o.CredsFile))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	if o.InProcess != nil {
		opts = append(opts, nats.InProcessServer(o.InProcess))
	}
	if o.Dial != nil {
		opts = append(opts, nats.SetCustomDialer(dialer(o.Dial)))
	}
	if o.Wait {
		opts = append(opts, nats.RetryOnFailedConnect(true))
	}
	nc, err := nats.Connect(o.URL, append(opts, extra...)...)
	switch {
	case err == nil:
		return nc, nil
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return nil, schemas.Errorf(schemas.CodeUnauthenticated,
			"the NATS server at %s refuses these credentials (%w): give --creds FILE, or the token of `sluice up` by SLUICE_NATS_TOKEN", o.URL, err)
	default:
		return nil, schemas.Errorf(schemas.CodeUnavailable,
			"no NATS server answers at %s (%w): start one with `sluice up`, or name yours with --nats URL", o.URL, err)
	}
}

// dialer fits a function to what nats.go calls.
type dialer func() (net.Conn, error)

// Dial ignores the address: the function knows where to go.
func (d dialer) Dial(_, _ string) (net.Conn, error) { return d() }

// SkipTLSHandshake leaves transport security to whoever wrote the function.
func (d dialer) SkipTLSHandshake() bool { return false }

// Close ends the connection. What was published and not yet acked may be lost; drain first what must not be.
func (c *Conn) Close() {
	if c.inbox != nil {
		c.inbox.close()
	}
	if c.bulk != nil {
		c.bulk.Close()
	}
	if c.nc != nil {
		c.nc.Close()
	}
}

// Flush returns once the server has seen all that was sent before. Errors: unavailable, deadline_exceeded.
func (c *Conn) Flush(ctx context.Context) error {
	return wrap(flush(ctx, c.nc), "flush")
}

// flush bounds the wait where ctx does not: nats.go refuses to flush without a deadline.
func flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return nc.FlushWithContext(ctx)
}

// MaxPayload is the most bytes the server takes in one message, headers included.
func (c *Conn) MaxPayload() int64 {
	if n := c.nc.MaxPayload(); n > 0 {
		return n
	}
	return 1 << 20 // NATS's default, before the first server said what it takes
}

// ServerURL is the server this connection is on, for people; empty while it is on none.
func (c *Conn) ServerURL() string { return c.nc.ConnectedUrlRedacted() }

// bucket opens a key-value bucket once and keeps it: opening costs a request.
func (c *Conn) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	c.bucketMu.Lock()
	defer c.bucketMu.Unlock()
	if kv, ok := c.buckets[name]; ok {
		return kv, nil
	}
	kv, err := c.js.KeyValue(ctx, name)
	if err != nil {
		return nil, wrap(err, "open bucket "+name)
	}
	c.buckets[name] = kv
	return kv, nil
}
