package run

import (
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// bit reads one fact of a numbered combination.
func bit(n, i int) bool { return n>>i&1 == 1 }

func TestAdmitEveryCombination(t *testing.T) {
	for n := range 1 << 12 {
		a := admission{
			invalid: bit(n, 0), durable: bit(n, 1), worn: bit(n, 2), leaving: bit(n, 3), foreign: bit(n, 4),
			unserved: bit(n, 5), full: bit(n, 6), unknown: bit(n, 7), running: bit(n, 8), same: bit(n, 9), denied: bit(n, 10), refused: bit(n, 11),
		}
		s := admit(a)
		v := verdict(s, "other", nil)
		rules := []struct {
			rule   string
			broken bool
		}{
			{"a fast command is never forwarded", !a.durable && v.Action == schemas.ActionForward},
			{"an invalid command never runs", a.invalid && s != stepReject},
			{"a worker that is leaving starts nothing", a.leaving && (s == stepRun || s == stepAttach)},
			{"a full worker starts nothing", a.full && s == stepRun},
			{"a command of another worker's thread does not run here", a.foreign && s == stepRun},
			{"a command that cannot be served does not run", (a.unserved || a.refused) && s == stepRun},
			{"a durable command that another worker may serve gets no record", a.unserved && !a.refused && s == stepRefuse},
			{"only a command that is refused for good, or finds no room on the direct path, is refused", s == stepRefuse && !a.refused && (a.durable || !a.full)},
			{"a command of a thread with an unknown owner does not run", a.unknown && s == stepRun},
			{"a running process does not run again", a.running && s == stepRun},
			{"only the same command attaches", s == stepAttach && (!a.running || !a.same)},
			{"the same command is no conflict", s == stepConflict && a.same},
			{"only an invalid, a denied, or a worn durable command is a dead letter", s == stepReject && !a.invalid && !a.denied && (!a.durable || !a.worn)},
			{"a denied command does not run", a.denied && s == stepRun},
			{"a full worker does not lose a durable command", a.durable && !a.worn && !a.invalid && a.full && !a.running && !a.leaving &&
				!a.unserved && !a.refused && !a.denied && v.Action != schemas.ActionRetry && v.Action != schemas.ActionForward && v.Action != schemas.ActionFull},
			{"to wait for room or for another worker is for a durable command", !a.durable && (s == stepWait || s == stepPass)},
			{"admit returns no step of a collision", s == stepReplay || s == stepLose || s == stepRerun},
		}
		for _, r := range rules {
			if r.broken {
				t.Errorf("%+v gives step %v, but %s", a, s, r.rule)
			}
		}
	}
	if s := admit(admission{}); s != stepRun {
		t.Errorf("admit(admission{}) = %v, want %v", s, stepRun)
	}
}

func TestCollideEveryCombination(t *testing.T) {
	types := []schemas.EventType{
		schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited, schemas.TypeProcessLost, schemas.TypeProcessRejected,
	}
	for n := range 1 << 6 {
		for _, last := range types {
			c := collision{unreadable: bit(n, 0), same: bit(n, 1), foreign: bit(n, 2), safe: bit(n, 3), again: bit(n, 4), answered: bit(n, 5), last: last}
			passing := last == schemas.TypeProcessRejected && c.again // Promises 12
			s := collide(c)
			runs := s == stepRerun
			rules := []struct {
				rule   string
				broken bool
			}{
				{"the same key with another command is a conflict", !c.unreadable && !c.same && s != stepConflict},
				{"only another command is a conflict", s == stepConflict && c.same},
				{"after a terminal record only a lost process with a safe retry runs, or one that never ran", last.Terminal() && runs && !passing && (last != schemas.TypeProcessLost || !c.safe)},
				{"nothing that may have started runs twice without a safe retry", runs && !c.safe && last != schemas.TypeProcessRejected},
				{"a rejection that may pass lets a later command run", passing && c.same && !c.unreadable && !c.foreign && runs == c.answered},
				{"a safe retry never answers lost", c.safe && c.same && !c.unreadable && (s == stepLose || s == stepReplay && last == schemas.TypeProcessLost)},
				{"a process that has ended is never recorded as lost", last.Terminal() && s == stepLose},
				{"the process of a later owner is left alone", c.foreign && (!last.Terminal() || passing) && (runs || s == stepLose)},
				{"a command whose record cannot be read is declined", c.unreadable && s != stepDecline},
				{"collide never returns stepRun", s == stepRun},
			}
			for _, r := range rules {
				if r.broken {
					t.Errorf("%+v gives step %v, but %s", c, s, r.rule)
				}
			}
		}
	}
}

func TestVerdictOfEveryStep(t *testing.T) {
	why := schemas.Errorf(schemas.CodeInvalidArgument, "no")
	want := map[step]schemas.Action{
		stepRun: schemas.ActionDone, stepReject: schemas.ActionDead, stepRefuse: schemas.ActionDone, stepDecline: schemas.ActionRetry,
		stepForward: schemas.ActionForward, stepAttach: schemas.ActionDone, stepReplay: schemas.ActionDone,
		stepWait: schemas.ActionFull, stepPass: schemas.ActionDecline, stepConflict: schemas.ActionDead, stepLose: schemas.ActionDone, stepRerun: schemas.ActionDone,
	}
	// Promises 3: a limit of the cell is no failure of the command.
	limit := schemas.Errorf(schemas.CodeLimitExceeded, "the stream EVT is full")
	if v := verdict(stepDecline, "", limit); v.Action != schemas.ActionLimit || v.Reason != limit {
		t.Errorf("verdict at a limit = %+v, want action limit with the reason %v", v, limit)
	}
	for s, action := range want {
		v := verdict(s, "other", why)
		if v.Action != action {
			t.Errorf("step %v is %v, want %v", s, v.Action, action)
		}
		if action == schemas.ActionDead && v.Reason != why {
			t.Errorf("verdict of step %v has reason %v, want %v", s, v.Reason, why)
		}
		if action == schemas.ActionForward && v.To != "other" {
			t.Errorf("verdict of step %v goes to %q, want other", s, v.To)
		}
	}
}

func TestResumeEveryCombination(t *testing.T) {
	for n := range 1 << 4 {
		f := finding{unknown: bit(n, 0), ended: bit(n, 1), foreign: bit(n, 2), partial: bit(n, 3)}
		if resume(f) != (n == 0) {
			t.Errorf("resume(%+v) = %v, want %v", f, resume(f), n == 0)
		}
	}
}
