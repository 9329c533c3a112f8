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

func TestMessagesAreReadFromAnyPointAndFollowed(t *testing.T) {
	cell, err := start()
	if err != nil {
		t.Fatal(err)
	}
	defer cell.close()
	worker, err := cell.conn()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := cell.conn()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	if err := c.Messages(ctx, client.MessageQuery{Thread: "a.b"}, nil); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Error(err)
	}
	const count = 10
	followed := make(chan []*schemas.Message, 1)
	failed := make(chan error, 1)
	enough := errors.New("enough")
	go func() {
		var got []*schemas.Message
		err := c.Messages(ctx, client.MessageQuery{Thread: "t1", Follow: true}, func(m *schemas.Message) error {
			if got = append(got, m); len(got) == count {
				return enough
			}
			return nil
		})
		followed <- got
		failed <- err
	}()
	var fifth uint64
	for i := range count {
		seq, err := worker.SaveMessage(ctx, schemas.DefaultTenant, &schemas.Message{Thread: "t1", Process: fmt.Sprint("p", i), Role: schemas.RoleUser, Text: fmt.Sprint(i), Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			fifth = seq
		}
	}
	got := <-followed
	if err := <-failed; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	for i, m := range got {
		if m.Text != fmt.Sprint(i) {
			t.Errorf("message %d says %q", i, m.Text)
		}
	}
	var rest []string
	if err := c.Messages(ctx, client.MessageQuery{Thread: "t1", From: fifth}, func(m *schemas.Message) error {
		rest = append(rest, m.Text)
		return nil
	}); err != nil || fmt.Sprint(rest) != "[5 6 7 8 9]" {
		t.Error(rest, err)
	}
}
