package events

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Timing of what a dispatcher holds. A command that is delivered is delivered again after ackWait, unless it is acked or held.
const (
	// holdTick is the interval at which commands are held. It leaves ackWait enough time on a busy machine.
	holdTick = ackWait / 4
	// holdTime is how long a held command stays away. It is long, since a dispatcher may hold many.
	holdTime = 5 * time.Minute
)

// holds are the unacked commands of a partition. One of them, the sentinel, is held for ackWait alone, again and again. When the
// worker dies, CMD delivers the sentinel to another one. By its number that one learns that it missed deliveries, and reads them all;
// see partition.receive. So the cost of a waiting command does not depend on how soon it has to be back.
type holds struct {
	conn     *Conn
	all      map[uint64]*unacked // by sequence
	fresh    []*unacked          // not held for holdTime yet
	sentinel *unacked
	renewed  time.Time
	unread   bool   // a gap is being read: there may be more
	decided  string // the ack of the sentinel when it was decided on, and stays until there is another one; else empty
}

// unacked is a command that is delivered and not acked.
type unacked struct {
	seq      uint64
	ack      string // the subject of its acks
	at       *partition
	queue    *threadQueue
	msg      *stored // nil when too many bytes are held: it is read again
	sent     time.Time
	failures int
	round    uint64 // its turn for room among the commands of its tenant; 0 for none yet
	reported string // what the caller knows that the command lacks
	running  bool   // it is being dispatched
	lost     bool   // another worker is pinned
}

// stored is a command as CMD stores it.
type stored struct {
	subject string
	header  nats.Header
	body    []byte
}

// The forms of an ack; see ADR-15 of NATS.
const (
	ackDone = "+ACK"
	ackNak  = "-NAK"
	ackTerm = "+TERM "
)

func nakAfter(d time.Duration) string {
	return ackNak + ` {"delay": ` + strconv.FormatInt(int64(d), 10) + `}`
}

// ackAs returns the subject of the acks of a command that was delivered to another worker: that of a delivery, with another sequence.
// An ack is for the sequence alone. The other numbers only have to be of this delivery or an earlier one.
func ackAs(reply string, seq uint64) string {
	tokens := strings.Split(reply, ".")
	at := 5 // $JS.ACK.STREAM.CONSUMER.DELIVERIES.SEQUENCE.NUMBER.TIME.PENDING
	if len(tokens) > 9 {
		at += 2 // $JS.ACK.DOMAIN.ACCOUNT.STREAM…
	}
	tokens[at] = strconv.FormatUint(seq, 10)
	return strings.Join(tokens, ".")
}

// acknowledge sends an ack. When it is lost, the command is delivered again, and its record answers.
func (hs *holds) acknowledge(h *unacked, ack string) { _ = hs.conn.nc.Publish(h.ack, []byte(ack)) }

func (hs *holds) add(h *unacked) {
	hs.all[h.seq] = h
	hs.fresh = append(hs.fresh, h)
}

// remove ends the hold on a command with its ack. Another sentinel is there before: a worker may die at each step. While a gap is read,
// the commands that were not read yet need one too.
func (hs *holds) remove(h *unacked, ack string) {
	delete(hs.all, h.seq)
	if hs.unread && len(hs.all) == 0 && hs.decided == "" && ack != "" {
		hs.sentinel, hs.decided = h, ack
		hs.keepSentinel()
		return
	}
	if hs.sentinel == h {
		hs.sentinel = nil
		hs.keepSentinel()
	}
	if ack != "" {
		hs.acknowledge(h, ack)
	}
}

// setUnread notes that a gap is being read, or no more. all reports that nothing is left of it. Otherwise a sentinel that was decided on
// stays, for the next worker.
func (hs *holds) setUnread(on, all bool) {
	hs.unread = on
	if !on && !all && hs.decided != "" {
		hs.sentinel, hs.decided = nil, ""
	}
	hs.replaceSentinel()
}

// replaceSentinel acks a sentinel that was decided on, after there is another one, or when none is needed.
func (hs *holds) replaceSentinel() {
	if hs.decided == "" || (hs.unread && len(hs.all) == 0) {
		return
	}
	old, ack := hs.sentinel, hs.decided
	hs.sentinel, hs.decided = nil, ""
	hs.keepSentinel()
	hs.acknowledge(old, ack)
}

func (hs *holds) keepSentinel() {
	if hs.sentinel == nil {
		for _, h := range hs.all {
			hs.sentinel = h
			break
		}
	}
	if hs.sentinel != nil {
		hs.acknowledge(hs.sentinel, nakAfter(ackWait))
	}
}

// keep holds everything. It is called every holdTick.
func (hs *holds) keep(now time.Time) {
	for _, h := range hs.fresh {
		if hs.all[h.seq] == h {
			hs.acknowledge(h, nakAfter(holdTime))
		}
	}
	hs.fresh = nil
	if now.Sub(hs.renewed) >= holdTime/2 {
		for _, h := range hs.all {
			hs.acknowledge(h, nakAfter(holdTime))
		}
		hs.renewed = now
	}
	hs.replaceSentinel()
	hs.keepSentinel()
}
