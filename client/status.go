package client

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// Status reads the state of the server, the cell's streams and workers, and counts the tenant's sessions and running processes.
// Errors: unavailable, not_found where no worker has set up the cell yet.
func (c *Client) Status(ctx context.Context) (*schemas.Status, error) {
	s, err := c.caller.Status(ctx, c.tenant)
	if err != nil {
		return nil, err
	}
	s.Tenant = c.tenant
	if err := c.caller.Sessions(ctx, c.tenant, func(session *schemas.Session) error {
		s.Sessions++
		if session.Sandbox != "" && !session.State.Final() {
			s.Sandboxes++
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if s.Owed, err = c.caller.Owed(ctx, c.tenant); err != nil {
		return nil, err
	}
	return s, nil
}
