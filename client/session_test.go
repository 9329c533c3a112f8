package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func ExampleClient_CreateSession() {
	c, done := example()
	defer done()
	ctx := context.Background()
	s, created, err := c.CreateSession(ctx, client.SessionRequest{Thread: "t1", User: "ann", Tags: map[string]string{"team": "blue"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("created:", created)
	r, err := s.Exec(ctx, client.Request{Command: "echo", Args: []string{"hello"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(r.Stdout)
	if _, err := s.Stop(ctx); err != nil {
		fmt.Println(err)
		return
	}
	_, err = s.Exec(ctx, client.Request{Command: "true"})
	fmt.Println("afterwards:", schemas.CodeOf(err))
	// Output:
	// created: true
	// hello
	// afterwards: session_expired
}

func TestSessionsAreFoundByWhatTheyAre(t *testing.T) {
	d := newDesk(t, "w1", "w2")
	for i := range 6 {
		_, created, err := d.CreateSession(d.ctx, client.SessionRequest{
			Thread: fmt.Sprint("t", i), User: fmt.Sprint("u", i%2), Tags: map[string]string{"third": fmt.Sprint(i % 3), "all": ""}, Start: i == 0,
		})
		d.must(err)
		if !created {
			t.Fatalf("t%d was there", i)
		}
	}
	for _, k := range []struct {
		query client.SessionQuery
		want  int
	}{
		{client.SessionQuery{}, 6}, {client.SessionQuery{User: "u1"}, 3}, {client.SessionQuery{Tags: map[string]string{"third": "1"}}, 2},
		{client.SessionQuery{User: "u1", Tags: map[string]string{"third": "1", "all": ""}}, 1}, {client.SessionQuery{Tags: map[string]string{"none": ""}}, 0},
		{client.SessionQuery{Limit: 4}, 4}, {client.SessionQuery{Template: "other"}, 0},
	} {
		got, err := d.Sessions(d.ctx, k.query)
		d.must(err)
		if len(got) != k.want {
			t.Errorf("%+v finds %d, want %d", k.query, len(got), k.want)
		}
	}
	for {
		got, err := d.Sessions(d.ctx, client.SessionQuery{State: schemas.SandboxRunning})
		d.must(err)
		if len(got) == 1 && got[0].Thread == "t0" {
			break
		}
	}
	// Another tenant sees none of them.
	conn, err := d.cell.conn()
	d.must(err)
	other, err := client.New(conn, client.WithTenant("other"))
	d.must(err)
	if got, err := other.Sessions(d.ctx, client.SessionQuery{}); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

func TestASessionsHandleIsOfThatSessionAlone(t *testing.T) {
	d := newDesk(t, "w1", "w2")
	first, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t", Start: true})
	d.must(err)
	again, created, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t", Start: true})
	d.must(err)
	if created || again.ID() != first.ID() || again.Thread() != "t" {
		t.Fatalf("%+v %+v", again, first)
	}
	if s, err := first.Renew(d.ctx, time.Hour); err != nil || s.IdleTimeoutMS != 3_600_000 {
		t.Fatalf("%+v %v", s, err)
	}
	last, err := first.Stop(d.ctx, client.StopGrace(time.Millisecond))
	d.must(err)
	// The second stop has the same outcome, whoever asks.
	for range 2 {
		if s, err := again.Stop(d.ctx); err != nil || s.ID != last.ID {
			t.Fatalf("%+v %v", s, err)
		}
	}
	second, created, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t"})
	d.must(err)
	if !created || second.ID() == first.ID() {
		t.Fatalf("%+v", second)
	}
	for name, f := range map[string]func() error{
		"info":  func() error { _, err := first.Info(d.ctx); return err },
		"renew": func() error { _, err := first.Renew(d.ctx, 0); return err },
		"exec":  func() error { _, err := first.Exec(d.ctx, client.Request{Command: "true"}); return err },
	} {
		if err := f(); !errors.Is(err, schemas.ErrSessionExpired) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := first.Stop(d.ctx); err != nil {
		t.Errorf("a stop of what has ended: %v", err)
	}
	if s, err := second.Info(d.ctx); err != nil || s.ID != second.ID() {
		t.Fatalf("the second session was stopped too: %+v %v", s, err)
	}
	if _, err := second.Delete(d.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := d.StopSession(d.ctx, "t"); !errors.Is(err, schemas.ErrNotFound) {
		t.Fatal(err)
	}
	if s, err := d.StopSession(d.ctx, "t", client.StopMissingOK()); s != nil || err != nil {
		t.Fatalf("%+v %v", s, err)
	}
	if _, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "no id"}); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
}

func TestSessionsNeedAWorker(t *testing.T) {
	d := newDesk(t)
	if _, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t"}); !errors.Is(err, schemas.ErrUnavailable) {
		t.Fatal(err)
	}
	if _, err := d.Session(d.ctx, "t"); !errors.Is(err, schemas.ErrNotFound) {
		t.Fatal(err)
	}
}
