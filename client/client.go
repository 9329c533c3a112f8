package client

import (
	"context"
	"sync"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/discover"
	"github.com/sluice-dev/sluice/schemas"
)

// Client talks to a cell for one tenant. Its methods are safe for concurrent use.
type Client struct {
	conn   *events.Conn
	caller *events.Caller
	tenant string
	close  func()

	admission Admission // nil: everything is admitted
	shared    *sharedPieces
}

// Option changes a default of [Connect] and [New].
type Option func(*settings)

type settings struct {
	nats   events.Options
	tenant string
	close  func()

	admission Admission
}

// WithCreds authenticates with a NATS credentials file, or with a file of `sluice tenant`.
func WithCreds(file string) Option { return func(s *settings) { s.nats.CredsFile = file } }

// WithToken authenticates with a token, such as the one in the data folder of `sluice up`.
func WithToken(token string) Option {
	return func(s *settings) { s.nats.Token, s.nats.TokenFrom = token, nil }
}

// WithTenant sets the tenant. Default [schemas.DefaultTenant].
func WithTenant(tenant string) Option { return func(s *settings) { s.tenant = tenant } }

// WithClose has Close of a client of [New] call close once, such as to close the connection. Default: it does nothing.
func WithClose(close func()) Option { return func(s *settings) { s.close = close } }

// WithCell sets the cell. Default [schemas.DefaultCell].
func WithCell(cell string) Option { return func(s *settings) { s.nats.Cell = cell } }

// WithName sets the name of the connection in the server's list of connections. Default "sluice".
func WithName(name string) Option { return func(s *settings) { s.nats.Name = name } }

// Discover opens a connection to the server that the command line finds: by SLUICE_NATS_URL, with SLUICE_NATS_CREDS, SLUICE_NATS_TOKEN and
// SLUICE_NATS_CA, or else the `sluice up` of the user's data folder (SLUICE_DATA), with the token in it. SLUICE_CELL and SLUICE_TENANT set
// the cell and the tenant. Options win. Programs pass os.Getenv. Errors: unavailable when no server is found, those of Connect.
func Discover(getenv func(string) string, opts ...Option) (*Client, error) {
	found, err := findServer(getenv)
	if err != nil {
		return nil, err
	}
	return Connect("", append([]Option{found}, opts...)...)
}

// Connect opens a connection to the server at url, such as nats://127.0.0.1:4222; see Discover for one without a url. Errors: unavailable
// when no server answers, unauthenticated when it rejects the credentials, invalid_argument for a tenant or cell that is not a valid id.
func Connect(url string, opts ...Option) (*Client, error) {
	s, err := newSettings(url, opts)
	if err != nil {
		return nil, err
	}
	conn, err := events.Connect(s.nats)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, caller: conn.Caller(), tenant: s.tenant, close: conn.Close, admission: s.admission, shared: newSharedPieces()}, nil
}

// findServer returns the option that connects to the server of the environment, or to that of the data folder.
func findServer(getenv func(string) string) (Option, error) {
	env := discover.Environment(getenv)
	o, err := env.Server()
	return func(s *settings) { s.nats, s.tenant = o, env.Tenant }, err
}

// New returns a client on an open connection, which it does not close; programs of the SDK use [Connect]. Of the options, only
// WithTenant, WithClose and WithAdmission have an effect. Errors: invalid_argument for a tenant that is not a valid id.
func New(conn *events.Conn, opts ...Option) (*Client, error) {
	s, err := newSettings("", opts)
	if err != nil {
		return nil, err
	}
	return &Client{
		conn: conn, caller: conn.Caller(), tenant: s.tenant, close: sync.OnceFunc(s.close), admission: s.admission, shared: newSharedPieces(),
	}, nil
}

func newSettings(url string, opts []Option) (*settings, error) {
	s := &settings{nats: events.Options{URL: url}, tenant: schemas.DefaultTenant, close: func() {}}
	for _, o := range opts {
		o(s)
	}
	s.nats.Tenant = s.tenant
	return s, schemas.CheckID("tenant", s.tenant)
}

// Close closes the connection that Connect opened. Processes continue.
func (c *Client) Close() { c.close() }

// locate reads the last record of a process, and finds its thread when it is empty. Errors: not_found, invalid_argument.
func (c *Client) locate(ctx context.Context, thread, process string) (schemas.ProcessRef, *schemas.Event, error) {
	if err := schemas.CheckID("process", process); err != nil {
		return schemas.ProcessRef{}, nil, err
	}
	if err := checkIDs(thread, ""); err != nil {
		return schemas.ProcessRef{}, nil, err
	}
	last, err := c.caller.Last(ctx, c.tenant, thread, process)
	if err != nil {
		return schemas.ProcessRef{}, nil, err
	}
	return schemas.ProcessRef{Tenant: c.tenant, Thread: last.Thread, Process: process}, last, nil
}

// checkIDs checks a thread and a process, each of which may be empty. Errors: invalid_argument.
func checkIDs(thread, process string) error {
	if thread != "" {
		if err := schemas.CheckID("thread", thread); err != nil {
			return err
		}
	}
	if process != "" {
		return schemas.CheckID("process", process)
	}
	return nil
}
