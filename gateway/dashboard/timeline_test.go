package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// event makes an event so many milliseconds after the first one.
func event(t *testing.T, typ schemas.EventType, ms int, process string, data any) *schemas.Event {
	t.Helper()
	ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, ID: fmt.Sprint(ms), Type: typ, Thread: "t1", Process: process, Time: at(ms)}
	testkit.Must(t, ev.SetData(data))
	return ev
}

func at(ms int) time.Time {
	return time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

func TestTimelineHasARowForWhatTookTime(t *testing.T) {
	pull := schemas.HookRun{Hook: schemas.HookPull, Phase: schemas.PhaseColdStart, Occasion: "1"}
	push := schemas.HookRun{Hook: schemas.HookPush, Phase: schemas.PhaseTerminate, Occasion: "2"}
	pulled, refused := pull, push
	pulled.DurationMS, refused.Error = 40, &schemas.Error{Code: schemas.CodeUnavailable, Message: "no\x1b[2J bucket"}
	exit := 3
	events := []*schemas.Event{
		event(t, schemas.TypeSessionCreated, 0, "", schemas.Session{ID: "s"}),
		event(t, schemas.TypeHookStarted, 60, "", pull),
		event(t, schemas.TypeSyncPulled, 95, "", schemas.SyncReport{Files: 2, Bytes: 2048, DurationMS: 30, Version: "v1"}),
		event(t, schemas.TypeHookFinished, 100, "", pulled),
		event(t, schemas.TypeColdStartFinished, 100, "", schemas.ColdStart{SandboxMS: 50, HooksMS: 45}),
		event(t, schemas.TypeProcessExited, 300, "gone", schemas.Result{Process: "gone", Command: "make", Reason: schemas.ReasonExited, Timestamp: at(200)}),
		event(t, schemas.TypeHookStarted, 60_000, "", push),
		event(t, schemas.TypeHookFailed, 60_020, "", refused),
		event(t, "process.unknown", 60_030, "x", "of a later version"),
		event(t, "coldstart.finished", 60_030, "x", "of a later version"),
	}
	processes := []schemas.ProcessInfo{
		{Process: "now", Command: "sleep", Args: []string{"9"}, Status: schemas.StatusRunning, Started: at(60_500)},
		{Process: "bad", Command: "sh", Args: []string{"-c", "exit 3"}, Status: schemas.StatusFailed, Reason: schemas.ReasonExited, ExitCode: &exit,
			Started: at(150), Ended: at(200)},
	}
	now := at(61_000)
	line := newTimeline(events, processes, now)
	var got []string
	for _, s := range line.Spans {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s|%s|%s", s.Kind, s.Label, s.Detail, s.Took(now), s.Class, s.Outcome))
	}
	testkit.Equal(t, "rows", got, []string{
		"command|sleep 9||500 ms|run|running",
		`hook|push-workspace|no\x1b[2J bucket||bad|failed`,
		"command|make||100 ms|ok|exit 0",
		"command|exit 3||50 ms|bad|exit 3",
		"sync|workspace pulled|v1|30 ms|ok|2 files, 2.0 KiB",
		"hook|pull-workspace||40 ms|ok|cold_start",
		"sandbox|sandbox started||95 ms|ok|ready",
		"session|session created|||quiet|",
	})
	testkit.Equal(t, "pauses", line.Wide, true)
	for i, s := range line.Spans {
		if s.X < 0 || s.Width <= 0 || s.X+s.Width > 1000.1 {
			t.Errorf("row %d is drawn from %g, %g wide, of 1000", i, s.X, s.Width)
		}
		if i > 0 && s.X > line.Spans[i-1].X {
			t.Errorf("row %d begins before row %d, and is drawn after it", i, i-1)
		}
	}
}

// The bars of thousands of moments stay inside.
func TestTimelineOfManyPauses(t *testing.T) {
	var events []*schemas.Event
	for i := range maxEvents {
		events = append(events, event(t, schemas.TypeSessionTerminated, i*10_000, "", schemas.Session{}))
	}
	for _, s := range newTimeline(events, nil, at(0)).Spans {
		if !(s.X >= 0 && s.X+s.Width <= 1000.1) {
			t.Fatalf("a row is drawn from %g, %g wide, of 1000", s.X, s.Width)
		}
	}
	testkit.Equal(t, "rows of nothing", len(newTimeline(nil, nil, at(0)).Spans), 0)
}

func TestTextOfOutside(t *testing.T) {
	for text, want := range map[string]string{
		"plain äß 日本":        "plain äß 日本",
		"a\x1b[31mb\x07":     `a\x1b[31mb\a`,
		"exe.\u202etxt":      `exe.\u202etxt`,
		"a\u2066b\u200fc":    `a\u2066b\u200fc`,
		"\xff":               "\uFFFD",
		"two\nlines\ttabbed": "two\nlines\ttabbed",
	} {
		testkit.Equal(t, fmt.Sprintf("%q", text), clean(text), want)
	}
	testkit.Equal(t, "a long line", shorten(5, "a  b\nc d e f"), "a b …")
	for _, tt := range []struct {
		p    schemas.ProcessInfo
		want string
	}{
		{schemas.ProcessInfo{Command: "ls", Args: []string{"-l", "a b", "it's", ""}}, `ls -l 'a b' 'it'\''s' ''`},
		{schemas.ProcessInfo{Command: "/bin/sh", Args: []string{"-c", "a | b"}}, "a | b"},
		{schemas.ProcessInfo{Command: "cat", Args: []string{"x"}, ArgsTruncated: true}, "cat x …"},
	} {
		testkit.Equal(t, "command", commandLine(tt.p), tt.want)
	}
}
