package events

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// lossyLink joins the two ends of a direction. It loses some messages.
type lossyLink struct {
	out      outgoing
	in       incoming
	loses    func() bool
	arriving []*nats.Msg
	asking   []int64
}

func newLossyLink(loses func() bool) *lossyLink {
	l := &lossyLink{loses: loses}
	l.out = outgoing{
		publish: func(h nats.Header, p []byte) {
			if !l.loses() {
				l.arriving = append(l.arriving, &nats.Msg{Header: h, Data: p})
			}
		},
		window:       func() int64 { return 2 * tunnelChunk },
		acknowledged: make(chan struct{}, 1),
	}
	l.in = incoming{
		queue: make(chan *nats.Msg, 2*tunnelMessages),
		askFrom: func(offset int64) {
			if !l.loses() {
				l.asking = append(l.asking, offset)
			}
		},
		asked: -1,
	}
	return l
}

// deliver passes on what is on its way, and adds the bytes to got. It reports whether the end came.
func (l *lossyLink) deliver(t *testing.T, got *bytes.Buffer) (end bool) {
	t.Helper()
	for len(l.arriving)+len(l.asking) > 0 {
		arriving, asking := l.arriving, l.asking
		l.arriving, l.asking = nil, nil
		for _, m := range arriving {
			numbers, err := readTunnelNumbers(m.Header)
			testkit.Must(t, err)
			testkit.Must(t, l.in.arrive(m, numbers.offset))
		}
		for _, offset := range asking {
			l.out.repeat(offset)
		}
	}
	for len(l.in.queue) > 0 {
		m := <-l.in.queue
		l.in.queued.Add(-int64(len(m.Data)))
		got.Write(m.Data)
		end = end || m.Header.Get(headerStdinEnd) != ""
	}
	return end
}

// Processes 4: whatever messages are lost, and whichever requests to send them again, all bytes arrive once and in order.
func TestLostBytesAreSentAgain(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				l := newLossyLink(func() bool { return random.IntN(3) == 0 })
				var sent, got bytes.Buffer
				const pieces = 100
				for n, ended := 0, false; !ended || !l.out.isEmpty(); {
					for ; n < pieces && l.out.hasRoom(); n++ {
						p := bytes.Repeat([]byte{byte(n)}, 1+random.IntN(10_000))
						sent.Write(p)
						l.out.send(p, n == pieces-1)
					}
					ended = l.deliver(t, &got) || ended
					time.Sleep(tunnelPing) //nolint:forbidigo // fake time
					l.in.expect(l.out.sent)
					if !l.loses() { // the acknowledgment
						testkit.Must(t, l.out.acknowledge(l.in.arrived.Load()))
					}
				}
				if !bytes.Equal(got.Bytes(), sent.Bytes()) {
					t.Errorf("%d bytes arrived, want the %d that were sent", got.Len(), sent.Len())
				}
				testkit.Equal(t, "pieces that are kept", len(l.out.pieces), 0)
			})
		})
	}
}

// Bytes that the other end does not send again, as one of an earlier version, are missing for long; what it says to be whole is not.
func TestBytesAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLossyLink(func() bool { return true })
		l.in.expect(0)
		testkit.Equal(t, "time without a hole", l.in.missingFor(), time.Duration(0))
		for range 3 {
			testkit.Must(t, l.in.arrive(&nats.Msg{Data: []byte("x")}, 7))
			time.Sleep(time.Second) //nolint:forbidigo // fake time
		}
		l.in.expect(8)
		testkit.Equal(t, "time", l.in.missingFor(), 3*time.Second)
		l.in.expect(0)
		testkit.Equal(t, "time after the hole was none", l.in.missingFor(), time.Duration(0))
	})
}

// A request for a repetition takes a few bytes, and its answer a window: one that floods is not answered each time.
func TestRepetitionsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLossyLink(func() bool { return false })
		l.out.send([]byte("abc"), false)
		for range 100 {
			l.out.repeat(0)
		}
		testkit.Equal(t, "messages", len(l.arriving), 2)
		time.Sleep(repeatPause) //nolint:forbidigo // fake time
		l.out.repeat(0)
		l.out.repeat(3)
		testkit.Equal(t, "messages after the pause", len(l.arriving), 3)
		testkit.WantCode(t, l.out.acknowledge(4), schemas.CodeInvalidArgument)
		for _, ack := range []int64{3, 0} { // the second one comes late
			testkit.Must(t, l.out.acknowledge(ack))
		}
		testkit.Equal(t, "acknowledged bytes", l.out.acked, int64(3))
	})
}

// The tunnels of a connection share what may be on its way: a server gives up on a client that has too much to read.
func TestTunnelsShareTheirWindow(t *testing.T) {
	var tunnels openTunnels
	for n, want := range map[int64]int64{1: tunnelWindow, 8: tunnelWindow, 16: tunnelWindow / 2, 1024: 2 * tunnelChunk} {
		tunnels.Store(n)
		testkit.Equal(t, fmt.Sprint("window of one of ", n), tunnels.window(), want)
	}
}
