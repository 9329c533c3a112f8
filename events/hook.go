package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Ask sends a request to a subject of a user's own, and returns the answer. Errors: unavailable where nobody listens,
// deadline_exceeded when ctx ends first, too_large for a body that the server does not take.
func (c *Conn) Ask(ctx context.Context, subject string, body []byte) ([]byte, error) {
	m, err := c.nc.RequestWithContext(ctx, subject, body)
	switch {
	case err == nil:
		return m.Data, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, schemas.Errorf(schemas.CodeUnavailable, "nobody listens on %s: start what is to answer, or take the hook out of the template", subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, schemas.Errorf(schemas.CodeTooLarge, "ask %s: %d bytes are more than the NATS server takes in one message, which is %d", subject, len(body), c.MaxPayload())
	default:
		return nil, wrap(err, "ask "+subject)
	}
}
