package events

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// gap is what a partition reads from CMD because it missed deliveries: every command that the consumer has delivered, and that is
// unacked, in order. Deliveries that come meanwhile are read too, after those before them.
//
// The consumer is not reset: while a reset is agreed on, its leader goes on delivering, and the next leader would know these deliveries
// alone.
type gap struct {
	end context.CancelFunc

	// The partition's lock guards the rest.
	after, known uint64 // the consumer's number of the last delivery that did not follow, and that up to which upTo is known
	upTo, read   uint64 // the sequences up to which to read, and up to which was read
	reply        string // the subject of the acks of the last delivery
}

// put notes a delivery. It reports whether the gap will have it: otherwise it was read.
func (g *gap) put(seq uint64, reply string) bool {
	g.reply, g.upTo = reply, max(g.upTo, seq)
	return seq > g.read
}

// readGap starts to read what was missed before a delivery, or has the gap that is being read include it. mu is held.
func (p *partition) readGap(ctx context.Context, number uint64) {
	if p.gap != nil {
		p.gap.after, p.gap.known = number, 0
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &gap{end: cancel, after: number}
	p.gap = g
	p.listener.dispatcher.setUnread(p, true, false)
	p.reading.Go(func() {
		for ctx.Err() == nil && !p.readAll(ctx, g) {
			_ = sleep(ctx, holdTick) // CMD or its consumer has no leader
		}
	})
}

// endGap ends the reading of the gap, if there is one; all reports that it was read. mu is held.
func (p *partition) endGap(all bool) {
	if p.gap == nil {
		return
	}
	p.gap.end()
	p.gap = nil
	p.listener.dispatcher.setUnread(p, false, all)
}

// stopReading ends the reading of a gap, and waits for it. Nothing is received any more.
func (p *partition) stopReading() {
	p.mu.Lock()
	p.endGap(false)
	p.mu.Unlock()
	p.reading.Wait()
}

// readAll reads until nothing of the gap is left. It returns false when a read fails.
func (p *partition) readAll(ctx context.Context, g *gap) bool {
	for {
		p.mu.Lock()
		if p.gap == g && g.known >= g.after && g.read >= g.upTo {
			p.endGap(true)
		}
		ended, asked, now := p.gap != g, g.known >= g.after, *g
		p.mu.Unlock()
		var err error
		switch {
		case ended:
			return true
		case asked:
			err = p.readNext(ctx, g, now.read, now.upTo)
		default:
			err = p.ask(ctx, g, now.after)
		}
		if err != nil {
			return false
		}
	}
}

// ask has the gap include what the consumer had delivered before a delivery, once its replicas know of that. Errors: those of nats.go.
func (p *partition) ask(ctx context.Context, g *gap, number uint64) error {
	conn := p.listener.conn
	for {
		cons, err := answered(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
			return conn.js.Consumer(ctx, conn.names.cmd, dispatchName+strconv.Itoa(p.number))
		})
		if err != nil {
			return err
		}
		if last := cons.CachedInfo().Delivered; last.Consumer >= number {
			p.mu.Lock()
			defer p.mu.Unlock()
			if g.after == number {
				g.known, g.upTo = number, max(g.upTo, last.Stream)
			}
			return nil
		}
		if err := sleep(ctx, lagWait); err != nil {
			return err
		}
	}
}

// readNext takes the next command from CMD's leader. Errors: those of leaderGet.
func (p *partition) readNext(ctx context.Context, g *gap, from, upTo uint64) error {
	conn := p.listener.conn
	m, err := conn.leaderGet(ctx, conn.names.cmd, directRequest{Seq: from + 1, NextBy: conn.subjects.Streams().PartitionCommands(p.number)})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gap != g: // another worker is pinned
	case m == nil || m.seq > upTo:
		g.read = upTo
	default:
		sent, _ := time.Parse(time.RFC3339Nano, m.header.Get(headerTimestamp)) // without it, load reads the command again
		p.listener.dispatcher.add(p, &unacked{seq: m.seq, ack: ackAs(g.reply, m.seq), sent: sent}, &stored{m.subject, m.header, m.data})
		g.read = m.seq
	}
	return nil
}
