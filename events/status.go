package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Status reads the state of the server, the cell's streams and its workers. Sessions and processes are not filled in. Errors:
// unavailable where JetStream is not reachable, not_found where no worker has set up the cell yet.
func (r *Reader) Status(ctx context.Context, tenant string) (*schemas.Status, error) {
	c := r.conn
	rtt, err := c.nc.RTT()
	if err != nil {
		return nil, wrap(err, "measure the round trip to the server")
	}
	s := &schemas.Status{
		Server: schemas.ServerStatus{URL: c.ServerURL(), Version: c.nc.ConnectedServerVersion(), RTTMS: float64(rtt) / float64(time.Millisecond)},
		Cell:   c.subjects.cell, Streams: []schemas.StreamStatus{}, Workers: []schemas.WorkerStatus{},
	}
	for _, name := range []string{c.names.cmd, c.names.evt, c.names.log, c.names.msg, c.names.dlq, "KV_" + c.names.state, "KV_" + c.names.leases} {
		stream, err := c.js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // MSG and DLQ are created at their first use
		}
		if err != nil {
			return nil, wrap(err, "read the state of stream "+name)
		}
		info := stream.CachedInfo()
		if name == c.names.log {
			if s.Log, err = (&tenantLogs{c}).status(ctx, tenant, info); err != nil {
				return nil, err
			}
		}
		s.Streams = append(s.Streams, schemas.StreamStatus{
			Name: name, Messages: info.State.Msgs, Bytes: info.State.Bytes,
			MaxBytes: max(info.Config.MaxBytes, 0), MaxAgeMS: info.Config.MaxAge.Milliseconds(),
		})
	}
	if len(s.Streams) == 0 {
		return nil, schemas.Errorf(schemas.CodeNotFound, "cell %s has no streams on this server: start a worker, which creates them", c.subjects.cell)
	}
	workers, err := r.Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range workers {
		alive, err := c.Worker().Roster.LeaseAlive(ctx, w.ID)
		if err != nil {
			return nil, err
		}
		s.Workers = append(s.Workers, schemas.WorkerStatus{WorkerInfo: w, Alive: alive})
	}
	return s, nil
}
