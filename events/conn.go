package events

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Options configure a connection to NATS.
type Options struct {
	// URL is one or more server URLs, comma-separated. Default nats://127.0.0.1:4222.
	URL string
	// CredsFile is a NATS credentials file, or a file with the seed of an nkey. Default: none.
	CredsFile string
	// Tenant is the tenant of a client. With the seed of an nkey it is in the account of the tenant's clients; see [AccountOf] and [InboxOf].
	// Default: none; a worker has none.
	Tenant string
	// CAFile is a file with the certificates of the authorities that may sign the server's. Default: those of the system.
	CAFile string
	// Token is the server's token. Default: none.
	Token string
	// TokenFrom returns the token for each connection, where it may change. Default: Token.
	TokenFrom func() string
	// Name is shown in the server's list of connections. Default "sluice".
	Name string
	// Cell is the cell token of every subject. Default [schemas.DefaultCell].
	Cell string
	// Domain is the JetStream domain that has the streams, when the server of the connection reaches it as a leaf node. Default: the
	// server's own.
	Domain string
	// InProcess connects to a server in this process; URL is then only what [Conn.ServerURL] returns. Default: none.
	InProcess nats.InProcessConnProvider
	// Dial opens the transport when it is not TCP, such as a unix socket. Default: none.
	Dial func() (net.Conn, error)
	// Wait retries the first connection forever. Use it for a worker that starts beside its server. Default: Connect fails at once.
	Wait bool
	// LeaseTTL is the time to live of the worker's lease; see silence. Default: that of [Topology].
	LeaseTTL time.Duration

	seed  bool   // CredsFile has the seed of an nkey
	inbox string // the prefix of inboxes; empty for that of nats.go
}

// Bounds of the time after which a connection without a sign of life is replaced.
const (
	minSilence = time.Second
	// silenceShare is the part of the lease TTL, as a divisor. A renewal begins a third of the TTL after the last one: when its server is
	// frozen then, more than a fifth of the TTL is left to renew the lease through another server.
	silenceShare = 4
)

// silence is how long a connection may go without a sign of life from its server, such as one that is frozen or behind a broken route.
func (o Options) silence() time.Duration {
	return max(cmp.Or(o.LeaseTTL, Topology{}.WithDefaults().LeaseTTL)/silenceShare, minSilence)
}

// Conn is a connection to a cell. [Conn.Caller] and [Conn.Worker] are its two views. Its methods are safe for concurrent use.
type Conn struct {
	layout
	streamReader

	js     jetstream.JetStream
	bulkJS jetstream.JetStream
	inbox  *inbox

	room     *eventRoom // in EVT
	budget   *logBudget // of LOG
	ends     endWatches // of processes
	tunnels  openTunnels
	messages atomic.Bool                 // the stream MSG exists
	dlq      atomic.Bool                 // the stream DLQ exists
	lease    atomic.Pointer[Lease]       // nil on a connection of a caller
	buffer   atomic.Pointer[EventBuffer] // nil unless the worker has one
	sealing  *Sealing
	shownURL string // in place of the server's; empty for that

	openMu      sync.Mutex
	buckets     map[string]jetstream.KeyValue
	dispatchers map[int]jetstream.Consumer // created by Ensure, not yet used by a Listener
	cmd         jetstream.Stream           // nil until it is needed
}

// Caller returns what a caller uses: it sends commands, controls processes, and reads.
func (c *Conn) Caller() *Caller { return &Caller{Reader{c}} }

// Worker returns what a worker uses: it receives commands, and writes records, output, sessions and messages.
func (c *Conn) Worker() *Worker {
	return &Worker{
		conn: c, Records: &Records{c}, Logs: &Logs{c}, Sessions: &SessionStore{c}, Roster: &Roster{c}, Messages: &MessageStore{c},
		Owed: &OwedStore{c}, Workspaces: &WorkspaceStore{c}, Services: &ServiceStore{c}, Sealing: c.sealing,
	}
}

// Connect opens a connection. Errors: unavailable when no server answers, unauthenticated when it refuses the
// credentials, not_found for a file of o that does not exist, invalid_argument for a cell that is not a valid id.
func Connect(o Options) (*Conn, error) {
	shown := ""
	if o.InProcess != nil { // by its URL, it would be a connection with TLS
		shown, o.URL = o.URL, ""
	}
	o.URL, o.Name, o.Cell = cmp.Or(o.URL, nats.DefaultURL), cmp.Or(o.Name, "sluice"), cmp.Or(o.Cell, schemas.DefaultCell)
	if err := schemas.CheckID("cell", o.Cell); err != nil {
		return nil, err
	}
	if err := schemas.CheckID("js-domain", cmp.Or(o.Domain, "none")); err != nil {
		return nil, err
	}
	o = o.inAccount()
	c := &Conn{
		layout: layout{NewSubjects(o.Cell), namesOf(o.Cell), Topology{}.WithDefaults()}, room: newEventRoom(), budget: newLogBudget(),
		ends:    endWatches{shared: make(map[Filter]*endWatch)},
		buckets: make(map[string]jetstream.KeyValue), dispatchers: make(map[int]jetstream.Consumer), shownURL: shown,
	}
	c.sealing = &Sealing{conn: c}
	var err error
	c.refusals = newRefusals()
	if c.nc, err = o.dial(o.Name, c.refusals.options()...); err != nil {
		return nil, err
	}
	c.api = o.apiPrefix()
	if c.js, err = o.jetStream(c.nc, jetstream.WithPublishAsyncTimeout(publishTimeout)); err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	// Chunks must stay in order. A write fails while the connection is down, and LogWriter sends it again in order. With a
	// reconnect buffer, a buffered chunk could arrive although one before it was lost.
	if c.bulk, err = o.dial(o.Name+" output", append(c.refusals.options(), nats.ReconnectBufSize(-1))...); err != nil {
		c.nc.Close()
		return nil, err
	}
	if c.bulkJS, err = o.jetStream(c.bulk, jetstream.WithPublishAsyncMaxPending(4*chunkWindow),
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

// apiPrefix is what the subjects of JetStream's requests begin with.
func (o Options) apiPrefix() string {
	if o.Domain == "" {
		return jetstream.DefaultAPIPrefix
	}
	return "$JS." + o.Domain + ".API."
}

func (o Options) jetStream(nc *nats.Conn, opts ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	if o.Domain == "" {
		return jetstream.New(nc, opts...)
	}
	return jetstream.NewWithDomain(nc, o.Domain, opts...)
}

// queueLen is how many messages a subscription holds for its reader, more than any batch has. Each place takes 8 bytes from the start: with
// the client's default, 65,536, it is half a megabyte for each follower.
const queueLen = 1024

func (o Options) dial(name string, extra ...nats.Option) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, time.Second), nats.Timeout(5 * time.Second),
		// The third ping finds that two have no answer. A write ends in time, too: while it waits for the server, nothing is checked.
		nats.PingInterval(o.silence() / 3), nats.MaxPingsOutstanding(2), nats.FlusherTimeout(o.silence()),
		nats.SyncQueueLen(queueLen),
	}
	if o.CredsFile != "" {
		opts = append(opts, o.credentials())
	}
	if o.CAFile != "" {
		if body, err := os.ReadFile(o.CAFile); err == nil && !x509.NewCertPool().AppendCertsFromPEM(body) { // nats.go reports a file that cannot be read
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s has no certificate in PEM: check --tls-ca", o.CAFile)
		}
		opts = append(opts, nats.RootCAs(o.CAFile))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	if o.TokenFrom != nil {
		opts = append(opts, nats.TokenHandler(o.TokenFrom))
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
	server := schemas.PublicURL(o.URL)
	invalid, ok := errors.AsType[*url.Error](err)
	file, isFile := errors.AsType[*fs.PathError](err)
	switch {
	case err == nil:
		return nc, nil
	case errors.As(err, new(*schemas.Error)):
		return nil, err
	case ok: // its text has the URL
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%s is not the URL of a NATS server (%w): write nats://HOST:PORT", server, schemas.PublicURLError(invalid.Err, o.URL))
	case isFile && errors.Is(file, fs.ErrNotExist):
		return nil, schemas.Errorf(schemas.CodeNotFound, "file %s does not exist (%w): check --creds and --tls-ca", file.Path, err)
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return nil, schemas.Errorf(schemas.CodeUnauthenticated, "the NATS server at %s has a certificate that is not trusted (%w): name its authority with --tls-ca FILE", server, err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return nil, schemas.Errorf(schemas.CodeUnauthenticated,
			"the NATS server at %s rejected the credentials (%w): set --creds FILE, or set SLUICE_NATS_TOKEN to the token of `sluice up`", server, err)
	default:
		return nil, schemas.Errorf(schemas.CodeUnavailable,
			"cannot connect to the NATS server at %s (%w): start one with `sluice up`, or set --nats URL", server, schemas.PublicURLError(err, o.URL))
	}
}

// hasSeed reports whether the credentials file has the seed of an nkey, and no JWT. nats.go reports a file that cannot be read.
func (o Options) hasSeed() bool {
	body, err := os.ReadFile(o.CredsFile)
	return err == nil && !bytes.Contains(body, []byte("BEGIN NATS USER JWT"))
}

// inAccount returns the options with what the account of a tenant's clients needs.
func (o Options) inAccount() Options {
	o.seed = o.CredsFile != "" && o.hasSeed()
	if o.seed && o.Tenant != "" {
		o.Domain, o.inbox = cmp.Or(o.Domain, AccountOf(o.Tenant)), InboxOf(o.Tenant)
	}
	return o
}

// credentials returns the option for CredsFile. nats.go reads the file at each connection.
func (o Options) credentials() nats.Option {
	if !o.seed {
		return nats.UserCredentials(o.CredsFile)
	}
	return func(opts *nats.Options) error {
		key, err := nats.NkeyOptionFromSeed(o.CredsFile)
		if err != nil {
			return schemas.Errorf(schemas.CodeInvalidArgument, "%s has neither NATS credentials nor the seed of an nkey (%w): check --creds", o.CredsFile, err)
		}
		opts.InboxPrefix = o.inbox
		return key(opts)
	}
}

// dialer adapts a function to nats.CustomDialer.
type dialer func() (net.Conn, error)

// Dial ignores the address: the function has its own.
func (d dialer) Dial(_, _ string) (net.Conn, error) { return d() }

// SkipTLSHandshake reports false: nats.go negotiates TLS over the connection as usual.
func (d dialer) SkipTLSHandshake() bool { return false }

// Close closes the connection. A message that is published and not yet acked may be lost.
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

// Flush returns once the server has processed everything sent before. Errors: unavailable, deadline_exceeded.
func (c *Conn) Flush(ctx context.Context) error {
	return wrap(flush(ctx, c.nc), "flush")
}

// flush adds a deadline to ctx: nats.go does not flush without one.
func flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return nc.FlushWithContext(ctx)
}

// flushSubscriptions returns once the server has what nc subscribed to before, also when the connection breaks meanwhile: nats.go subscribes
// again. What was published before may be lost then. The answer comes behind all that the server sends before it, such as the output of
// others: it has until nothing arrives for publishTimeout, and an hour at most.
func flushSubscriptions(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // nats.go does not flush without a deadline
	defer cancel()
	flushed := make(chan error, 1)
	go func() {
		err := nc.FlushWithContext(ctx)
		for errors.Is(err, nats.ErrConnectionClosed) && !nc.IsClosed() { // nats.go reports so for a connection that it restores
			err = nc.FlushWithContext(ctx)
		}
		flushed <- err
	}()
	silence := time.NewTicker(publishTimeout)
	defer silence.Stop()
	for arrived := nc.Stats().InMsgs; ; {
		select {
		case err := <-flushed:
			return err
		case <-silence.C:
		}
		before := arrived
		if arrived = nc.Stats().InMsgs; arrived == before {
			cancel()
			if err := <-flushed; !errors.Is(err, context.Canceled) {
				return err
			}
			return context.DeadlineExceeded
		}
	}
}

// MaxPayload returns the most bytes the server accepts in one message, headers included.
func (c *Conn) MaxPayload() int64 {
	if n := c.nc.MaxPayload(); n > 0 {
		return n
	}
	return 1 << 20 // the default of NATS, used until the server has sent its limit
}

// Subscriptions returns how many subscriptions are open: those of followers, reads and calls, and the few of the connection itself.
func (c *Conn) Subscriptions() int { return c.nc.NumSubscriptions() + c.bulk.NumSubscriptions() }

// Closed reports whether the connection is closed for good: by Close, or because the server refuses the credentials.
func (c *Conn) Closed() bool { return c.nc.IsClosed() }

// refusal returns err, or why the server refused what failed with err: its answer to a request that is not permitted is to the
// connection alone.
func (c *Conn) refusal(err error) error {
	why := c.nc.LastError()
	switch {
	case err == nil:
		return nil
	case c.nc.IsClosed() && (errors.Is(why, nats.ErrAuthorization) || errors.Is(why, nats.ErrAuthExpired)):
		return schemas.Errorf(schemas.CodeUnauthenticated, "the NATS server rejects the credentials (%w): %w", why, err)
	case isTransient(err) && errors.Is(why, nats.ErrPermissionViolation):
		return schemas.Errorf(schemas.CodePermissionDenied, "the NATS server refuses a request (%w): %w", why, err)
	default:
		return err
	}
}

// OthersMayReturn reports whether the expired lease of another worker says nothing about it yet: this worker joined, or renewed its own
// lease late, less than one TTL, and at least 10 s, ago. NATS may have been away, and the others may be on their way back.
func (c *Conn) OthersMayReturn() bool { return c.lease.Load().othersMayReturn() }

// ServerURL returns the URL of the connected server, without credentials, for people to read. It is empty while disconnected.
func (c *Conn) ServerURL() string {
	u := c.nc.ConnectedUrl() // nats.go would redact a password, and print a token
	if u == "" {
		return ""
	}
	return schemas.PublicURL(cmp.Or(c.shownURL, u))
}

// bucket opens a key-value bucket once: opening costs a request.
func (c *Conn) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	if kv, ok := c.buckets[name]; ok {
		return kv, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	kv, err := watched(ctx, c.refusals, c.infoSubject(kvStream(name)), func(ctx context.Context) (jetstream.KeyValue, error) {
		return answered(ctx, func(ctx context.Context) (jetstream.KeyValue, error) { return c.js.KeyValue(ctx, name) })
	})
	if err != nil {
		return nil, wrap(err, "open bucket "+name)
	}
	c.buckets[name] = kv
	return kv, nil
}
