package events

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Settings of the consumers of CMD.
const (
	dispatchName = "dispatch-"
	pinGroup     = "workers"
	// pullExpiry is how long a pull request lives: each new one keeps the pin. It is the least that nats.go takes.
	pullExpiry = time.Second
	// pinTTL is the time without a pull request after which another worker is pinned: the queue waits so long for a worker that
	// was killed.
	pinTTL = 1500 * time.Millisecond
	// ackWait is the time after which a command that a dead worker did not even begin to hold is delivered again; see holds.
	ackWait = time.Second
	// pullMessages and pullBytes bound what is on its way to a worker. nats.go drops messages above 64 MB.
	pullMessages, pullBytes = 500, 16 << 20
)

// partition receives the commands of one partition of CMD while its consumer is pinned to this worker.
type partition struct {
	listener *Listener
	number   int

	mu sync.Mutex
	// next is the consumer's number of the next delivery; 0 when deliveries were missed.
	next    uint64
	gap     *gap           // what is read from CMD; nil for nothing
	reading sync.WaitGroup // the readers of gaps

	cancels cancels

	holds // guarded by the dispatcher's lock
}

// consume starts to consume the partition.
func (p *partition) consume(ctx context.Context) (jetstream.ConsumeContext, error) {
	operation := "consume commands of partition " + strconv.Itoa(p.number)
	cons, err := p.listener.conn.dispatcher(ctx, p.number)
	if err != nil {
		return nil, wrap(err, operation)
	}
	// The stream may be a new one.
	p.cancels.forget()
	p.forget()
	cc, err := cons.Consume(func(m jetstream.Msg) { p.receive(ctx, m) },
		jetstream.PullPriorityGroup(pinGroup), jetstream.PullExpiry(pullExpiry), jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		// The library retries after a missed heartbeat or a change of the leader.
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if errors.Is(err, jetstream.ErrPinIDMismatch) {
				p.unpinned()
			}
		}))
	return cc, wrap(err, operation)
}

// keepConsuming consumes again when a consumer ends, such as one that was deleted or lost with the files of its stream.
func (p *partition) keepConsuming(ctx context.Context, cc jetstream.ConsumeContext) error {
	defer p.stopReading()
	for {
		if cc != nil {
			select {
			case <-ctx.Done():
				drainAll([]jetstream.ConsumeContext{cc})
				return nil
			case <-cc.Closed():
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryDelay):
		}
		cc, _ = p.consume(ctx) // nil on an error: the next turn tries again
	}
}

// drainAll stops consumers. What one has received by then is returned at once.
func drainAll(consumers []jetstream.ConsumeContext) {
	for _, c := range consumers {
		c.Drain()
	}
	for _, c := range consumers {
		<-c.Closed()
	}
}

// receive takes a command. One that does not follow the last delivery comes after others that this worker did not see: another worker
// was pinned, or the connection broke. They are read first, so no command is dispatched before an earlier one of its thread.
func (p *partition) receive(ctx context.Context, m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	number, seq := meta.Sequence.Consumer, meta.Sequence.Stream
	if number != 1 && number != p.next {
		p.readGap(ctx, number)
	}
	p.next = number + 1
	if p.gap != nil && p.gap.put(seq, m.Reply()) {
		return
	}
	p.listener.dispatcher.add(p, &unacked{seq: seq, ack: m.Reply(), sent: meta.Timestamp}, &stored{m.Subject(), m.Headers(), m.Data()})
}

// unpinned gives up what waits here: another worker is pinned, and gets it.
func (p *partition) unpinned() {
	p.forget()
	p.listener.dispatcher.forget(p)
}

// forget has the next delivery read what was delivered before it.
func (p *partition) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = 0
	p.endGap(false)
}

// unpin lets another worker be pinned at once. It does nothing for a worker that has received nothing.
func (p *partition) unpin(ctx context.Context) {
	p.mu.Lock()
	pinned := p.next > 0
	p.mu.Unlock()
	if !pinned {
		return
	}
	// After an error, the pin expires.
	if s, err := p.listener.conn.commands(ctx); err == nil {
		_ = s.UnpinConsumer(ctx, dispatchName+strconv.Itoa(p.number), pinGroup)
	}
}

// dispatcherConfig has one worker at a time receive all commands of a partition; see dispatcher for their order. An unacked command
// holds up no other one, so their number has no bound but that of CMD.
func (l *layout) dispatcherConfig(partition int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       dispatchName + strconv.Itoa(partition),
		FilterSubject: l.subjects.Streams().PartitionCommands(partition),
		AckPolicy:     jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: -1, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{pinGroup}, PinnedTTL: pinTTL,
	}
}

// ensureDispatcher creates the consumer of one partition of CMD, unless it exists as it has to be, and keeps it for the Listener. To read it
// needs no agreement of the servers.
func (c *Conn) ensureDispatcher(ctx context.Context, partition int, fresh bool) error {
	cfg := c.dispatcherConfig(partition)
	var cons jetstream.Consumer
	err := error(jetstream.ErrConsumerNotFound)
	if !fresh {
		cons, err = answered(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
			return c.js.Consumer(ctx, c.names.cmd, cfg.Durable)
		})
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) || err == nil && !isDispatcher(cons.CachedInfo().Config, cfg) {
		cons, err = c.js.CreateOrUpdateConsumer(ctx, c.names.cmd, cfg)
	}
	if err != nil {
		return wrap(err, "create the consumer of command partition "+strconv.Itoa(partition))
	}
	c.openMu.Lock()
	defer c.openMu.Unlock()
	c.dispatchers[partition] = cons
	return nil
}

// isDispatcher reports whether a consumer delivers as one with the configuration want.
func isDispatcher(have, want jetstream.ConsumerConfig) bool {
	return have.FilterSubject == want.FilterSubject && have.AckPolicy == want.AckPolicy && have.AckWait == want.AckWait &&
		have.MaxAckPending == want.MaxAckPending && have.MaxDeliver == want.MaxDeliver && have.PriorityPolicy == want.PriorityPolicy &&
		slices.Equal(have.PriorityGroups, want.PriorityGroups) && have.PinnedTTL == want.PinnedTTL
}

// dispatcher returns the consumer of one partition of CMD: first the one that Ensure created, later a new one.
func (c *Conn) dispatcher(ctx context.Context, partition int) (jetstream.Consumer, error) {
	c.openMu.Lock()
	cons := c.dispatchers[partition]
	delete(c.dispatchers, partition)
	c.openMu.Unlock()
	if cons != nil {
		return cons, nil
	}
	return c.js.CreateOrUpdateConsumer(ctx, c.names.cmd, c.dispatcherConfig(partition))
}
