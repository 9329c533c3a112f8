package events

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

func TestALeaseEndsForItsHolderBeforeItEndsForOthers(t *testing.T) {
	_, c := connected(t, true)
	l, err := c.AcquireLease(patient(t), "w", "one")
	must(t, err)
	if !l.Holds() || c.leased() != nil {
		t.Fatal("a new lease does not hold")
	}
	ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, ID: "e1", Source: "w", Type: schemas.TypeSessionReused, Tenant: "default", Thread: "t"}
	must(t, c.Publish(patient(t), ev))
	// As if it had been frozen for most of the lifetime: for the server it is alive.
	l.mu.Lock()
	l.renewed = l.renewed.Add(-c.leaseTTL + c.leaseTTL/leaseMargin)
	l.mu.Unlock()
	if l.Holds() {
		t.Fatal("the lease holds past its holder's reckoning")
	}
	if alive, err := c.LeaseAlive(patient(t), "w"); err != nil || !alive {
		t.Fatalf("%v %v", alive, err)
	}
	// Nothing gets out any more, and no renewal brings it back.
	if l.extend(time.Now()) || l.Holds() {
		t.Fatal("a lease that has lapsed was extended")
	}
	again := *ev
	again.ID = "e2"
	if err := c.Publish(patient(t), &again); schemas.CodeOf(err) != schemas.CodeLost {
		t.Fatalf("an event was published: %v", err)
	}
	if _, err := c.Append(patient(t), &again, 0); schemas.CodeOf(err) != schemas.CodeLost {
		t.Fatalf("a record was published: %v", err)
	}
	w := c.OpenLog(ref("t", "p"), nil)
	if err := w.Write(schemas.Stdout, 0, []byte("late")); err == nil {
		_, err = w.Close()
		if schemas.CodeOf(err) != schemas.CodeLost {
			t.Fatalf("output was stored: %v", err)
		}
	}
	// The next incarnation may.
	_, err = c.AcquireLease(patient(t), "w", "two")
	must(t, err)
	must(t, c.Publish(patient(t), &again))
}
