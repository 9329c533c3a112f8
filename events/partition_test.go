package events

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 3, 5: a dispatcher missed deliveries while others were on their way and were acked, and then all servers of the cell restarted.
// No command that waited is lost, and the order of its thread holds.
func TestMissedDeliveriesOutliveARestartOfAllServers(t *testing.T) {
	const threads, commands = 20, 10 // those that wait
	const senders, others = 16, 100
	cluster, topology := newCluster(t), Topology{Partitions: 1}
	sender := cluster.connect(0)
	cluster.ensure(sender, topology)
	member := func(id string, onCommand func(*fakeWorker, schemas.Delivery) schemas.Verdict) (*fakeWorker, func()) {
		c := cluster.connect(1)
		cluster.ensure(c, topology)
		return startWorkerOn(t, c, id, func(w *fakeWorker) { w.onCommand = onCommand })
	}
	stored := func(c *peer) uint64 {
		s, err := c.js.Stream(testkit.Context(t), c.names.cmd)
		testkit.Must(t, err)
		return s.CachedInfo().State.Msgs
	}
	for i := range threads * commands {
		queue(t, sender, command(fmt.Sprint("t", i%threads), strconv.Itoa(i/threads)))
	}
	before, stop := member("before", func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
		if strings.HasPrefix(d.Thread, "t") {
			return full("another")
		}
		return schemas.Verdict{}
	})
	var sending sync.WaitGroup
	for n := range senders {
		sending.Go(func() {
			for i := range others {
				queue(t, sender, command(fmt.Sprint("other", n, "-", i), "k"))
			}
		})
	}
	for range senders * others / 4 {
		before.next(t)
	}
	p := before.listener.dispatcher.partitions[0]
	p.mu.Lock()
	p.next = 0 // deliveries are missed, while the consumer goes on delivering
	p.mu.Unlock()
	sending.Wait()
	for stored(sender) > threads*commands {
		testkit.Must(t, sleep(testkit.Context(t), lagWait))
	}
	testkit.Equal(t, "commands that wait", stored(sender), uint64(threads*commands))
	cons, err := before.conn.js.Consumer(testkit.Context(t), before.conn.names.cmd, dispatchName+"0")
	testkit.Must(t, err)
	info := cons.CachedInfo()
	testkit.Equal(t, "stored ack floor below the first command that waits", info.AckFloor.Stream, uint64(0))
	if info.Delivered.Consumer < info.Delivered.Stream { // a reset loses commands if deliveries are made before it is agreed on
		t.Fatalf("the consumer was reset: delivery %d, command %d", info.Delivered.Consumer, info.Delivered.Stream)
	}
	before.conn.Close() // killed
	stop()
	sender.Close()
	cluster.stop()
	cluster.start()

	l := &ledger{t: t, next: map[string]int{}, left: threads * commands, done: make(chan struct{})}
	after, _ := member("after", func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
		l.accept(d)
		return schemas.Verdict{}
	})
	select {
	case <-l.done:
	case <-testkit.Context(t).Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Fatalf("%d commands were not accepted; CMD has %d", l.left, stored(after.conn))
	}
	for stored(after.conn) > 0 { // each one is acked
		testkit.Must(t, sleep(testkit.Context(t), lagWait))
	}
}

// The subject of an ack has one of three forms; see ADR-15 of NATS.
func TestAckAs(t *testing.T) {
	for reply, want := range map[string]string{
		"$JS.ACK.S.C.1.7.9.1700000000.3":       "$JS.ACK.S.C.1.42.9.1700000000.3",
		"$JS.ACK.D.A.S.C.1.7.9.1700000000.3":   "$JS.ACK.D.A.S.C.1.42.9.1700000000.3",
		"$JS.ACK._.A.S.C.1.7.9.1700000000.3.r": "$JS.ACK._.A.S.C.1.42.9.1700000000.3.r",
	} {
		testkit.Equal(t, reply, ackAs(reply, 42), want)
	}
}

// Promises 3, 5: a worker that reads what it missed may die at each step. Until all is read, one command comes back soon, by which the next
// worker finds that there is more.
func TestSentinelStaysWhileMissedCommandsAreRead(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(hs *holds, next *unacked)
		want string
	}{
		{"more was read", func(hs *holds, next *unacked) { hs.add(next); hs.keep(time.Now()) },
			`1 -NAK {"delay": 1000000000}, 2 -NAK {"delay": 300000000000}, 2 -NAK {"delay": 300000000000}, 2 -NAK {"delay": 1000000000}, 1 +ACK, ` +
				`2 -NAK {"delay": 1000000000}`},
		{"all was read", func(hs *holds, _ *unacked) { hs.setUnread(false, true) }, `1 -NAK {"delay": 1000000000}, 1 +ACK`},
		{"another worker reads on", func(hs *holds, _ *unacked) { hs.setUnread(false, false) }, `1 -NAK {"delay": 1000000000}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, conn := connected(t, false)
			acks, err := conn.nc.SubscribeSync("acks.*")
			testkit.Must(t, err)
			hs := &holds{conn: conn.Conn, all: make(map[uint64]*unacked)}
			first := &unacked{seq: 1, ack: "acks.1"}
			hs.setUnread(true, false)
			hs.add(first)
			hs.remove(first, ackDone)
			c.end(hs, &unacked{seq: 2, ack: "acks.2"})
			testkit.Must(t, conn.nc.Publish("acks.end", nil))
			var got []string
			for {
				m, err := acks.NextMsgWithContext(testkit.Context(t))
				testkit.Must(t, err)
				if m.Subject == "acks.end" {
					break
				}
				got = append(got, strings.TrimPrefix(m.Subject, "acks.")+" "+string(m.Data))
			}
			testkit.Equal(t, "acks", strings.Join(got, ", "), c.want)
		})
	}
}
