package events

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Status reads the state of the server, the cell's streams, its workers and what they run. Sessions are not filled in. Errors:
// deadline_exceeded, unavailable where JetStream is not reachable, not_found where no worker has set up the cell yet.
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
	unused := make(map[string]schemas.StreamStatus) // MSG and DLQ are created at their first use
	for _, name := range []string{c.names.cmd, c.names.evt, c.names.log, c.names.msg, c.names.dlq, "KV_" + c.names.state, "KV_" + c.names.leases} {
		stream, err := watched(ctx, c.refusals, c.infoSubject(name), func(ctx context.Context) (jetstream.Stream, error) {
			return c.js.Stream(ctx, name)
		})
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if later, ok := unused[name]; ok {
				s.Streams = append(s.Streams, later)
			}
			continue
		}
		if err != nil {
			return nil, wrap(err, "read the state of stream "+name)
		}
		info := stream.CachedInfo()
		status := schemas.StreamStatus{
			Name: name, Messages: info.State.Msgs, Bytes: info.State.Bytes,
			MaxBytes: max(info.Config.MaxBytes, 0), MaxAgeMS: info.Config.MaxAge.Milliseconds(),
		}
		switch name {
		case c.names.cmd:
			for _, later := range c.laterStreams(info.Config.Metadata) {
				unused[later.Name] = later
			}
		case c.names.evt:
			status.RefuseBytes = acceptBytes(status.MaxBytes)
			if s.Records, err = recordStatus(ctx, c, tenant, info); err != nil {
				return nil, err
			}
		case c.names.log:
			if s.Log, err = (&tenantLogs{c}).status(ctx, tenant, info); err != nil {
				return nil, err
			}
		}
		s.Streams = append(s.Streams, status)
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
	if err := r.countProcesses(ctx, tenant, workers, s); err != nil {
		return nil, err
	}
	return s, nil
}

// countProcesses counts what the workers of a status run now. One that does not answer runs what it reported last, or more of the tenant.
func (r *Reader) countProcesses(ctx context.Context, tenant string, workers []schemas.WorkerInfo, s *schemas.Status) error {
	list, counts, err := r.runningOnAll(ctx, workers, Filter{Tenant: tenant}, false)
	if err != nil {
		return err
	}
	s.Processes = len(list)
	ofTenant := make(map[string]int)
	for _, p := range list {
		ofTenant[p.Worker]++
	}
	for i := range s.Workers {
		w := &s.Workers[i]
		if counts[i] != nil {
			w.Processes = *counts[i]
		}
		w.Processes = max(w.Processes, ofTenant[w.ID])
	}
	return nil
}

// laterStreams are the streams that are created at their first use, by the metadata of CMD.
func (l *layout) laterStreams(meta map[string]string) (list []schemas.StreamStatus) {
	for name, key := range map[string]string{l.names.msg: metaMessageBytes, l.names.dlq: metaDeadBytes} {
		if limit, err := strconv.ParseInt(meta[key], 10, 64); err == nil {
			list = append(list, schemas.StreamStatus{Name: name, MaxBytes: max(limit, 0)})
		}
	}
	return list
}

// LogBytes returns how many bytes of a process's output LOG holds, and counts them from the first that it still has. Errors: unavailable,
// deadline_exceeded.
func (r *Reader) LogBytes(ctx context.Context, ref schemas.ProcessRef) (bytes int64, err error) {
	c := r.conn
	for _, s := range schemas.Streams() {
		subject := c.subjects.Log(ref.Tenant, ref.Thread, ref.Process, s)
		first, _, err := c.directGet(ctx, c.names.log, directRequest{Seq: 1, NextBy: subject, Batch: 1})
		if err != nil {
			return 0, wrap(err, "read the output of process "+ref.Process)
		}
		last, err := c.directLast(ctx, c.names.log, subject)
		if err != nil {
			return 0, wrap(err, "read the output of process "+ref.Process)
		}
		if len(first) == 0 || last == nil {
			continue
		}
		from, ok := c.subjects.decodeChunk(first[0].seq, first[0].subject, first[0].header, first[0].data)
		to, ok2 := c.subjects.decodeChunk(last.seq, last.subject, last.header, last.data)
		if ok && ok2 {
			bytes += max(to.End()-from.Offset, 0)
		}
	}
	return bytes, nil
}
