package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMessagesAreReadFromAnySequenceAndFollowed(t *testing.T) {
	d := newCaller(t)
	worker, err := d.cell.conn()
	d.must(err)
	d.wantCode("an invalid thread", d.Messages(d.ctx, client.MessageQuery{Thread: "a.b"}, nil), schemas.CodeInvalidArgument)
	const count = 10
	followed := make(chan []string, 1)
	failed := make(chan error, 1)
	go func() {
		var got []string
		err := d.Messages(d.ctx, client.MessageQuery{Thread: "t1", Follow: true}, func(m *schemas.Message) error {
			if got = append(got, m.Text); len(got) == count {
				return errStop
			}
			return nil
		})
		followed <- got
		failed <- err
	}()
	var want []string
	var fifth uint64
	for i := range count {
		want = append(want, fmt.Sprint(i))
		seq, err := worker.Worker().Messages.SaveMessage(d.ctx, schemas.DefaultTenant, &schemas.Message{Thread: "t1", Process: fmt.Sprint("p", i), Role: schemas.RoleUser, Text: want[i], Time: time.Now()})
		d.must(err)
		if i == 5 {
			fifth = seq
		}
	}
	got := <-followed
	if err := <-failed; !errors.Is(err, errStop) {
		t.Fatalf("follow messages: %v", err)
	}
	d.equal("followed messages", got, want)
	var rest []string
	d.must(d.Messages(d.ctx, client.MessageQuery{Thread: "t1", From: fifth}, func(m *schemas.Message) error {
		rest = append(rest, m.Text)
		return nil
	}))
	d.equal("messages from the fifth on", rest, want[5:])
}
