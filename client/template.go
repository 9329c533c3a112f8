package client

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// Templates lists the templates that the cell's workers have, by name. Errors: unavailable.
func (c *Client) Templates(ctx context.Context) ([]*schemas.Template, error) {
	return c.conn.Templates(ctx)
}

// Template is the template of this name. Errors: invalid_argument, not_found, unavailable.
func (c *Client) Template(ctx context.Context, name string) (*schemas.Template, error) {
	return c.conn.Template(ctx, name)
}
