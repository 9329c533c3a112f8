package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/schemas"
)

func message(thread, process string, role schemas.Role, text string) *schemas.Message {
	return &schemas.Message{Thread: thread, Session: "s1", Process: process, Role: role, Text: text, Time: time.Unix(1, 0).UTC()}
}

// said are a thread's stored messages.
func said(t testing.TB, c *Conn, thread string, from uint64) (out []*schemas.Message) {
	t.Helper()
	_, err := c.Messages(patient(t), schemas.DefaultTenant, thread, from, func(m *schemas.Message) error {
		out = append(out, m)
		return nil
	})
	must(t, err)
	return out
}

func TestMessagesAreStoredOnceAndReadInOrder(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		_, c := connected(t, listen)
		ctx := patient(t)
		if got := said(t, c, "t1", 1); len(got) != 0 {
			t.Fatalf("%d messages before the first one", len(got))
		}
		var seqs []uint64
		for i := range 3 {
			for _, role := range schemas.Roles() {
				seq, err := c.SaveMessage(ctx, schemas.DefaultTenant, message("t1", fmt.Sprint("p", i), role, fmt.Sprint(role, i)))
				must(t, err)
				seqs = append(seqs, seq)
			}
			_, err := c.SaveMessage(ctx, schemas.DefaultTenant, message("other", fmt.Sprint("p", i), schemas.RoleUser, "x"))
			must(t, err)
		}
		again, err := c.SaveMessage(ctx, schemas.DefaultTenant, message("t1", "p1", schemas.RoleAgent, "something else"))
		must(t, err)
		if again != seqs[3] {
			t.Errorf("saved again at %d, want %d", again, seqs[3])
		}
		got := said(t, c, "t1", 0)
		if len(got) != 6 {
			t.Fatalf("%d messages, want 6", len(got))
		}
		for i, m := range got {
			want := message("t1", fmt.Sprint("p", i/2), schemas.Roles()[i%2], fmt.Sprint(schemas.Roles()[i%2], i/2))
			want.Seq = seqs[i]
			if diff := cmp.Diff(want, m); diff != "" {
				t.Error(diff)
			}
		}
		if tail := said(t, c, "t1", seqs[4]); len(tail) != 2 || tail[0].Seq != seqs[4] {
			t.Errorf("%d messages from %d on", len(tail), seqs[4])
		}
	})
}

func TestMessageSizesAreBounded(t *testing.T) {
	_, c := connected(t, false)
	ctx := patient(t)
	for i, text := range []string{
		strings.Repeat("ü", schemas.MaxPromptBytes), strings.Repeat("\x00", schemas.MaxPromptBytes), strings.Repeat("<", schemas.MaxPromptBytes),
		"\xff\xfe", "", "x" + strings.Repeat("ü", schemas.MaxPromptBytes/2),
	} {
		_, err := c.SaveMessage(ctx, schemas.DefaultTenant, message("t1", fmt.Sprint("p", i), schemas.RoleAgent, text))
		must(t, err)
	}
	got := said(t, c, "t1", 1)
	if len(got) != 6 {
		t.Fatalf("%d messages", len(got))
	}
	for i, truncated := range []bool{true, true, false, false, false, true} {
		if got[i].Truncated != truncated || len(got[i].Text) > schemas.MaxPromptBytes {
			t.Errorf("message %d: %d bytes, truncated %t", i, len(got[i].Text), got[i].Truncated)
		}
	}
	if len(got[2].Text) != schemas.MaxPromptBytes || got[3].Text != "\uFFFD" || strings.Contains(got[5].Text, "\uFFFD") {
		t.Error("a text was cut or changed that need not be")
	}
	for _, bad := range []*schemas.Message{
		message("a.b", "p", schemas.RoleUser, ""), message("t", "*", schemas.RoleUser, ""), message("t", "p", "system", ""), message("t", "", schemas.RoleUser, ""),
	} {
		_, err := c.SaveMessage(ctx, schemas.DefaultTenant, bad)
		wantCode(t, err, schemas.CodeInvalidArgument)
	}
}

func TestManySaveOneMessage(t *testing.T) {
	n, c := connected(t, true)
	const savers = 8
	seqs := make([]uint64, savers)
	errs := make([]error, savers)
	var all sync.WaitGroup
	for i := range savers {
		conn := n.connect()
		all.Go(func() {
			seqs[i], errs[i] = conn.SaveMessage(patient(t), schemas.DefaultTenant, message("t1", "p1", schemas.RoleUser, fmt.Sprint(i)))
		})
	}
	all.Wait()
	must(t, errors.Join(errs...))
	if got := said(t, c, "t1", 1); len(got) != 1 || got[0].Seq != seqs[0] || seqs[0] != seqs[savers-1] {
		t.Errorf("%d messages at %v", len(got), seqs)
	}
}

func TestMessagesAreFollowed(t *testing.T) {
	n, c := connected(t, true)
	ctx := patient(t)
	feed, err := n.connect().ListenMessages(schemas.DefaultTenant, "t1", 0) // before there is a stream
	must(t, err)
	defer feed.Close()
	must(t, feed.conn.Flush(ctx))
	var got []string
	hear := func(m *schemas.Message) error {
		got = append(got, m.Text)
		return nil
	}
	must(t, feed.CatchUp(ctx, hear))
	save := func(i int) {
		for {
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := c.SaveMessage(short, schemas.DefaultTenant, message("t1", fmt.Sprint("p", i), schemas.RoleUser, fmt.Sprint(i)))
			cancel()
			if err == nil {
				return
			}
			if !passing(err) {
				t.Fatal(err)
			}
		}
	}
	for i := range 20 {
		if i == 10 {
			n.restart()
		}
		save(i)
	}
	for len(got) < 20 {
		must(t, feed.Next(ctx, hear))
	}
	for i, text := range got {
		if text != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, text)
		}
	}
	mine := errors.New("enough")
	save(20)
	for {
		if err := feed.Next(ctx, func(*schemas.Message) error { return mine }); err != nil {
			if !errors.Is(err, mine) {
				t.Fatal(err)
			}
			break
		}
	}
}
