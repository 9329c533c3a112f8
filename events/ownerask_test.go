package events

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A stop that took a little longer than one request waits has succeeded, though the next request finds no session any more.
func TestLateAnswerOfAnOwnerCounts(t *testing.T) {
	t.Parallel()
	n, c := connected(t, false)
	owner, asked := n.connect(), make(chan *nats.Msg, 1)
	respond := func(m *nats.Msg, reply any) {
		body, err := json.Marshal(reply)
		if err == nil {
			err = m.Respond(body)
		}
		if err != nil {
			t.Errorf("respond: %v", err)
		}
	}
	gone := schemas.SessionReply{Error: schemas.Errorf(schemas.CodeNotFound, "thread t has no session")}
	testkit.Must(t, errorOf(owner.nc.Subscribe(owner.subjects.Control("default", "t", noProcess, VerbStop), func(m *nats.Msg) {
		select {
		case asked <- m:
		default:
			respond(m, gone)
		}
	})))
	testkit.Must(t, errorOf(owner.nc.Subscribe(owner.subjects.API("default", placeVerb), func(m *nats.Msg) {
		first := <-asked
		respond(first, schemas.SessionReply{Session: &schemas.Session{ID: "s1"}})
		asked <- first // the next request finds no session
		respond(m, gone)
	})))
	testkit.Must(t, owner.nc.Flush())
	s, err := c.StopSession(testkit.Context(t), "default", "t", schemas.StopRequest{})
	testkit.Must(t, err)
	testkit.Equal(t, "session", s.ID, "s1")
}

// TestPlaceWithAStartOutlivesALostAnswer: the answer to the start is lost, and the caller asks again, long before a start has to be over.
func TestPlaceWithAStartOutlivesALostAnswer(t *testing.T) {
	t.Parallel()
	n, c := connected(t, false)
	owner := n.connect()
	respond := func(m *nats.Msg, reply any) {
		body, err := json.Marshal(reply)
		testkit.Must(t, errors.Join(err, m.Respond(body)))
	}
	placed := schemas.PlaceReply{Worker: "w1", Created: true, Session: &schemas.Session{ID: "s1"}}
	testkit.Must(t, errorOf(owner.nc.Subscribe(owner.subjects.API("default", placeVerb), func(m *nats.Msg) {
		if req, err := schemas.DecodePlaceRequest(m.Data); err != nil || !req.Start { // a start has no answer here
			respond(m, placed)
		}
	})))
	asked := 0
	testkit.Must(t, errorOf(owner.nc.Subscribe(owner.subjects.Control("default", "t", noProcess, VerbStart), func(m *nats.Msg) {
		if asked++; asked > 1 {
			respond(m, schemas.SessionReply{Session: &schemas.Session{ID: "s1", State: schemas.SandboxRunning}})
		}
	})))
	testkit.Must(t, owner.nc.Flush())
	got, err := c.Place(testkit.Context(t), "default", schemas.PlaceRequest{Thread: "t", Start: true})
	testkit.Must(t, err)
	testkit.Equal(t, "created", got.Created, true)
	testkit.Equal(t, "state", got.Session.State, schemas.SandboxRunning)
}
