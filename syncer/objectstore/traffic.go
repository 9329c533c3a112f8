package objectstore

import (
	"context"
	"sync/atomic"
)

// Traffic counts requests to a server, which cost money, retries and pages of listings included. A store that sends none counts none.
type Traffic struct {
	Requests atomic.Int64
	Sent     atomic.Int64 // bytes of the bodies of requests
	Received atomic.Int64 // bytes of the bodies of responses
}

type trafficKey struct{}

// WithTraffic returns a context whose requests t counts.
func WithTraffic(ctx context.Context, t *Traffic) context.Context {
	return context.WithValue(ctx, trafficKey{}, t)
}

// TrafficOf returns what counts the requests of ctx.
func TrafficOf(ctx context.Context) *Traffic {
	if t, ok := ctx.Value(trafficKey{}).(*Traffic); ok {
		return t
	}
	return &Traffic{}
}
