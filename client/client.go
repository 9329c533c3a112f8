package client

import (
	"context"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// Client talks to a cell for one tenant. Its methods may be called at the same time.
type Client struct {
	conn   *events.Conn
	tenant string
	owned  bool
}

// Option changes a default of [Connect] and [New].
type Option func(*settings)

type settings struct {
	nats   events.Options
	tenant string
}

// WithCreds authenticates by a NATS credentials file.
func WithCreds(file string) Option { return func(s *settings) { s.nats.CredsFile = file } }

// WithToken authenticates by a token, such as the one in the data folder of `sluice up`.
func WithToken(token string) Option { return func(s *settings) { s.nats.Token = token } }

// WithTenant speaks for a tenant. Default [schemas.DefaultTenant].
func WithTenant(tenant string) Option { return func(s *settings) { s.tenant = tenant } }

// WithCell speaks to a cell. Default [schemas.DefaultCell].
func WithCell(cell string) Option { return func(s *settings) { s.nats.Cell = cell } }

// WithName names the connection in the server's lists. Default "sluice".
func WithName(name string) Option { return func(s *settings) { s.nats.Name = name } }

// Connect opens a connection to the server at url, such as nats://127.0.0.1:4222. Errors: unavailable when no server answers,
// unauthenticated when it refuses, invalid_argument for a tenant or cell that is no id.
func Connect(url string, opts ...Option) (*Client, error) {
	s := settings{nats: events.Options{URL: url}}
	for _, o := range opts {
		o(&s)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	conn, err := events.Connect(s.nats)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, tenant: s.tenant, owned: true}, nil
}

// New is a client on a connection that is there already, which it does not close. Of the options, only WithTenant has a
// meaning here. Errors: invalid_argument for a tenant that is no id.
func New(conn *events.Conn, opts ...Option) (*Client, error) {
	var s settings
	for _, o := range opts {
		o(&s)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return &Client{conn: conn, tenant: s.tenant}, nil
}

func (s *settings) check() error {
	if s.tenant == "" {
		s.tenant = schemas.DefaultTenant
	}
	return schemas.CheckID("tenant", s.tenant)
}

// Close closes the connection that Connect opened. Processes go on.
func (c *Client) Close() {
	if c.owned {
		c.conn.Close()
	}
}

func (c *Client) ref(thread, process string) schemas.ProcessRef {
	return schemas.ProcessRef{Tenant: c.tenant, Thread: thread, Process: process}
}

// locate finds a process's thread where the caller does not know it. Errors: not_found, invalid_argument.
func (c *Client) locate(ctx context.Context, thread, process string) (schemas.ProcessRef, *schemas.Event, error) {
	if err := schemas.CheckID("process", process); err != nil {
		return schemas.ProcessRef{}, nil, err
	}
	if thread != "" {
		if err := schemas.CheckID("thread", thread); err != nil {
			return schemas.ProcessRef{}, nil, err
		}
	}
	last, err := c.conn.Last(ctx, c.tenant, thread, process)
	if err != nil {
		return schemas.ProcessRef{}, nil, err
	}
	return c.ref(last.Thread, process), last, nil
}
