package events

import (
	"errors"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 17: a connection that breaks during a read loses a part of the answer, and delivers the rest once it is back. What comes before
// the lost part is read, and the read fails.
func TestBatchWithoutAPartFails(t *testing.T) {
	for name, c := range map[string]struct {
		arrive []int // the sequences that arrive of 1 to 5; 6 is the end of the batch
		read   int
	}{
		"complete":           {[]int{1, 2, 3, 4, 5, 6}, 5},
		"without the first":  {[]int{2, 3, 4, 5, 6}, 0},
		"without the middle": {[]int{1, 2, 5, 6}, 2},
		"without the last":   {[]int{1, 2, 3, 4, 6}, 4},
		"the end alone":      {[]int{6}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := connected(t, false)
			// Nothing but a server's answer can be cut at an exact place, so this answers in its place.
			answered := make(chan struct{})
			answers, err := conn.bulk.Subscribe(conn.directSubject("CUT"), func(m *nats.Msg) {
				defer close(answered)
				for _, seq := range c.arrive {
					h := nats.Header{headerLastSequence: {"9", strconv.Itoa(seq - 1)}, headerPending: {"0"}}
					if seq == 6 {
						h = nats.Header{headerLastSequence: {"5"}, headerPending: {"0"}, "Status": {statusEndOfBatch}}
					} else {
						h[headerSequence] = []string{"7", strconv.Itoa(seq)} // the first value is the publisher's
					}
					testkit.Must(t, conn.bulk.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h}))
				}
			})
			testkit.Must(t, err)
			defer func() {
				<-answered // what comes after a lost part is answered too
				testkit.Must(t, answers.Unsubscribe())
			}()
			msgs, _, err := conn.directGet(testkit.Context(t), "CUT", directRequest{Seq: 1, Batch: 5})
			testkit.Equal(t, "messages", len(msgs), c.read)
			for i, m := range msgs {
				testkit.Equal(t, "sequence", m.seq, uint64(i+1))
			}
			if c.read == 5 {
				testkit.Must(t, err)
			} else if !errors.Is(err, schemas.ErrUnavailable) {
				t.Fatalf("error = %v, want unavailable", err)
			}
		})
	}
}
