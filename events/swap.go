package events

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// inFlightWait is how long a compare-and-swap waits for a message in flight before it tries again.
const inFlightWait = 10 * time.Millisecond

// inFlight reports that a compare-and-swap was refused for a message that the replicas of the stream have not agreed on yet. It may be
// this writer's own, from a try that had no answer, and it may never be stored: it is no conflict.
func inFlight(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// copyOf is a message that a try may publish: to publish one changes its headers, and tries overlap.
func copyOf(m *nats.Msg) *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: maps.Clone(m.Header), Data: m.Data}
}

// swap tries a compare-and-swap again while another message is in flight, or it has no answer, for publishTimeout at most. After that a
// conflict is one with a message that is stored, which may be this writer's own, and unavailable leaves the outcome open.
func swap[T any](ctx context.Context, try func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	for {
		v, err := answered(ctx, try)
		if !inFlight(err) || sleep(ctx, inFlightWait) != nil {
			return v, err
		}
	}
}
