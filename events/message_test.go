package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func message(thread, process string, role schemas.Role, text string) *schemas.Message {
	return &schemas.Message{Thread: thread, Session: "s1", Process: process, Role: role, Text: text, Time: time.Unix(1, 0).UTC()}
}

// save stores a message and returns its sequence.
func (c *peer) save(t testing.TB, m *schemas.Message) uint64 {
	t.Helper()
	seq, err := c.SaveMessage(testkit.Context(t), schemas.DefaultTenant, m)
	testkit.Must(t, err)
	return seq
}

// storedMessages returns the messages of a thread at or after a sequence.
func storedMessages(t testing.TB, c *peer, thread string, from uint64) (out []*schemas.Message) {
	t.Helper()
	_, err := c.Caller.Messages(testkit.Context(t), schemas.DefaultTenant, thread, from, func(m *schemas.Message) error {
		out = append(out, m)
		return nil
	})
	testkit.Must(t, err)
	return out
}

func TestMessageIsStoredOnce(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		_, c := connected(t, listen)
		testkit.Equal(t, "messages before the first one", len(storedMessages(t, c, "t1", 1)), 0)
		var seqs []uint64
		for i := range 3 {
			for _, role := range schemas.Roles() {
				seqs = append(seqs, c.save(t, message("t1", fmt.Sprint("p", i), role, fmt.Sprint(role, i))))
			}
			c.save(t, message("other", fmt.Sprint("p", i), schemas.RoleUser, "x"))
		}
		again := c.save(t, message("t1", "p1", schemas.RoleAgent, "something else"))
		testkit.Equal(t, "sequence of the second save", again, seqs[3])
		got := storedMessages(t, c, "t1", 0)
		if len(got) != 6 {
			t.Fatalf("%d messages are stored, want 6", len(got))
		}
		for i, m := range got {
			want := message("t1", fmt.Sprint("p", i/2), schemas.Roles()[i%2], fmt.Sprint(schemas.Roles()[i%2], i/2))
			want.Seq = seqs[i]
			testkit.Equal(t, "message", m, want)
		}
		if tail := storedMessages(t, c, "t1", seqs[4]); len(tail) != 2 || tail[0].Seq != seqs[4] {
			t.Errorf("%d messages from sequence %d on, want the 2 from there", len(tail), seqs[4])
		}
	})
}

func TestLongMessagesAreTruncated(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	for i, text := range []string{
		strings.Repeat("ü", schemas.MaxPromptBytes), strings.Repeat("\x00", schemas.MaxPromptBytes), strings.Repeat("<", schemas.MaxPromptBytes),
		"\xff\xfe", "", "x" + strings.Repeat("ü", schemas.MaxPromptBytes/2),
	} {
		c.save(t, message("t1", fmt.Sprint("p", i), schemas.RoleAgent, text))
	}
	got := storedMessages(t, c, "t1", 1)
	if len(got) != 6 {
		t.Fatalf("%d messages are stored, want 6", len(got))
	}
	for i, truncated := range []bool{true, true, false, false, false, true} {
		testkit.Equal(t, fmt.Sprintf("truncated, message %d", i), got[i].Truncated, truncated)
		if len(got[i].Text) > schemas.MaxPromptBytes {
			t.Errorf("message %d has %d bytes, want at most %d", i, len(got[i].Text), schemas.MaxPromptBytes)
		}
	}
	testkit.Equal(t, "bytes of a text at the limit", len(got[2].Text), schemas.MaxPromptBytes)
	testkit.Equal(t, "text of invalid UTF-8", got[3].Text, "\uFFFD")
	testkit.Equal(t, "a truncated text ends in a part of a character", strings.Contains(got[5].Text, "\uFFFD"), false)
	for _, bad := range []*schemas.Message{
		message("a.b", "p", schemas.RoleUser, ""), message("t", "*", schemas.RoleUser, ""), message("t", "p", "system", ""), message("t", "", schemas.RoleUser, ""),
	} {
		testkit.WantCode(t, errorOf(c.SaveMessage(ctx, schemas.DefaultTenant, bad)), schemas.CodeInvalidArgument)
	}
}

func TestConcurrentSavesStoreOneMessage(t *testing.T) {
	n, c := connected(t, true)
	const savers = 8
	seqs := make([]uint64, savers)
	errs := make([]error, savers)
	var all sync.WaitGroup
	for i := range savers {
		conn := n.connect()
		all.Go(func() {
			seqs[i], errs[i] = conn.SaveMessage(testkit.Context(t), schemas.DefaultTenant, message("t1", "p1", schemas.RoleUser, fmt.Sprint(i)))
		})
	}
	all.Wait()
	testkit.Must(t, errors.Join(errs...))
	if got := storedMessages(t, c, "t1", 1); len(got) != 1 || got[0].Seq != seqs[0] || seqs[0] != seqs[savers-1] {
		t.Errorf("%d messages are stored, saved at %v: want 1 and one sequence", len(got), seqs)
	}
}

func TestMessagesAreFollowed(t *testing.T) {
	n, c := connected(t, true)
	ctx := testkit.Context(t)
	feed, err := n.connect().FollowMessages(schemas.DefaultTenant, "t1", 0) // before the stream exists
	testkit.Must(t, err)
	defer feed.Close()
	testkit.Must(t, flush(ctx, feed.nc))
	var got []string
	add := func(m *schemas.Message) error {
		got = append(got, m.Text)
		return nil
	}
	testkit.Must(t, feed.CatchUp(ctx, add))
	save := func(i int) {
		for {
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := c.SaveMessage(short, schemas.DefaultTenant, message("t1", fmt.Sprint("p", i), schemas.RoleUser, fmt.Sprint(i)))
			cancel()
			if err == nil {
				return
			}
			if !isTransient(err) {
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
		testkit.Must(t, feed.Next(ctx, add))
	}
	for i, text := range got {
		testkit.Equal(t, fmt.Sprintf("text of message %d", i), text, fmt.Sprint(i))
	}
	failed := errors.New("of the callback")
	save(20)
	for {
		if err := feed.Next(ctx, func(*schemas.Message) error { return failed }); err != nil {
			if !errors.Is(err, failed) {
				t.Fatal(err)
			}
			break
		}
	}
}

func TestMessagesAreReadWhileTheFirstOneIsSaved(t *testing.T) {
	for range 20 {
		_, c := connected(t, false)
		ctx := testkit.Context(t)
		saved := make(chan error, 1)
		go func() {
			_, err := c.SaveMessage(ctx, schemas.DefaultTenant, message("t1", "p1", schemas.RoleUser, "hello"))
			saved <- err
		}()
		for len(storedMessages(t, c, "t1", 1)) == 0 {
		}
		testkit.Must(t, <-saved)
	}
}
