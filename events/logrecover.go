package events

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// wait waits for the ack of a chunk. The library fails it after publishTimeout.
func (s *sent) wait() (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	select {
	case ack := <-s.future.Ok():
		return ack.Sequence, nil
	case err := <-s.future.Err():
		return 0, err
	}
}

// recover stores a chunk whose publish failed, and all chunks sent after it. It first waits for everything in flight: only then is
// it known where the stored output ends. Meanwhile nothing new is published.
func (w *LogWriter) recover(first *sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	chunks := []*outChunk{first.chunk}
	for len(w.inFlight) > 0 {
		s := <-w.inFlight
		// LOG says whether it was stored: an ack may be lost as well as a chunk.
		_, _ = s.wait()
		chunks = append(chunks, s.chunk)
		<-w.slots
	}
	if w.failed == nil {
		w.failed = w.resend(chunks)
	}
	w.unsettled.Store(0)
	w.held = false
}

// resend stores the chunks that LOG does not have, one at a time, until there is no progress for retryFor. Errors: too_large; lost when this
// worker can store nothing more, and leaves the output to the next one.
func (w *LogWriter) resend(chunks []*outChunk) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(w.retryFor))
	return backoff.Retry(func() error {
		left, err := w.resendOnce(chunks)
		if len(left) < len(chunks) {
			policy.Reset()
		}
		chunks = left
		err = wrap(err, "store output")
		if err != nil && w.conn.bulk.IsClosed() {
			// As after a revocation of the credentials. The worker ends by that, as one without its lease: the next one stores the output.
			err = schemas.Errorf(schemas.CodeLost, "the connection to NATS is closed: %w", err)
		}
		if errors.Is(err, schemas.ErrTooLarge) || errors.Is(err, schemas.ErrLost) {
			return backoff.Permanent(err)
		}
		return err
	}, policy)
}

// resendOnce skips the chunks that LOG has and stores the rest, each only if LOG got nothing of this process since: a chunk that
// seemed lost may still arrive and must not be stored twice. It returns the chunks that are left.
//
// From the first chunk on that LOG does not have after the one before it, it stores all again, even those that LOG has: there they follow a
// hole, and a reader takes the copies that follow each other. A chunk that was sent just after a reconnect comes before its predecessors
// when the server that had received these was frozen.
func (w *LogWriter) resendOnce(chunks []*outChunk) ([]*outChunk, error) {
	if err := w.lease.held(); err != nil {
		return chunks, err // before the read, which would wait for NATS
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	last, have, err := w.inLog(ctx)
	if err != nil {
		return chunks, err
	}
	for _, k := range have {
		if len(chunks) > 0 && k.place == chunks[0].place() {
			w.done(chunks[0], k.seq)
			chunks = chunks[1:]
		}
	}
	all := w.conn.subjects.Log(w.ref.Tenant, w.ref.Thread, w.ref.Process, "")
	for len(chunks) > 0 {
		s := &sent{chunk: chunks[0]}
		s.future, s.err = w.publish(s.chunk, jetstream.WithExpectLastSequenceForSubject(last, all))
		if last, err = s.wait(); err != nil {
			return chunks, err
		}
		w.done(chunks[0], last)
		chunks = chunks[1:]
	}
	return nil, nil
}

// place is what identifies a chunk among those of a run. A number alone does not: an earlier incarnation may have sent another chunk
// under it, which arrived after the log was read.
type place struct {
	number int64
	stream schemas.Stream
	offset int64
	size   int
}

// placed is a chunk in LOG.
type placed struct {
	place
	seq uint64
}

func (k *outChunk) place() place { return place{k.number, k.stream, k.offset, len(k.data)} }

// inLog returns the sequence of the process's newest chunk in LOG, 0 for none, and the chunks after the last one known to be stored, in
// the order of LOG.
func (w *LogWriter) inLog(ctx context.Context) (last uint64, have []placed, err error) {
	all := w.conn.subjects.Log(w.ref.Tenant, w.ref.Thread, w.ref.Process, "")
	newest, err := w.conn.leaderSeq(ctx, w.conn.names.log, directRequest{LastBy: all})
	if err != nil || newest == 0 {
		return 0, nil, err
	}
	from := w.rng.LastSeq + 1
	err = w.conn.readUntil(ctx, w.conn.names.log, all, newest, func() (uint64, error) {
		for {
			msgs, more, err := w.conn.directGet(ctx, w.conn.names.log, directRequest{Seq: from, NextBy: all, Batch: readBatch, MaxBytes: readBatchBytes})
			for _, m := range msgs {
				from = m.seq + 1
				k, ok := w.conn.subjects.decodeChunk(m.seq, m.subject, m.header, m.data)
				if ok && k.Epoch == w.ref.Epoch {
					have = append(have, placed{place{k.Number, k.Stream, k.Offset, len(k.Data)}, k.Seq})
				}
			}
			if err != nil || !more || from > newest {
				return from, err
			}
		}
	})
	return newest, have, err
}
