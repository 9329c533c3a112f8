package processor

import (
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// bit reads one truth of a numbered combination.
func bit(n, i int) bool { return n>>i&1 == 1 }

func TestAdmitEveryCombination(t *testing.T) {
	for n := range 1 << 11 {
		a := admission{
			invalid: bit(n, 0), durable: bit(n, 1), worn: bit(n, 2), leaving: bit(n, 3), foreign: bit(n, 4),
			unserved: bit(n, 5), full: bit(n, 6), unknown: bit(n, 7), running: bit(n, 8), same: bit(n, 9), denied: bit(n, 10),
		}
		s := admit(a)
		v := verdict(s, "other", nil)
		rules := []struct {
			rule   string
			broken bool
		}{
			{"a fast command is never forwarded", !a.durable && v.Action == schemas.ActionForward},
			{"an invalid command is never run", a.invalid && s != stepReject},
			{"a worker that leaves starts nothing", a.leaving && (s == stepRun || s == stepAttach)},
			{"a full worker starts nothing", a.full && s == stepRun},
			{"another worker's thread is not run here", a.foreign && s == stepRun},
			{"nothing is run that cannot be served", a.unserved && s == stepRun},
			{"nothing is run on a guess", a.unknown && s == stepRun},
			{"what runs is not run again", a.running && s == stepRun},
			{"only the same command attaches", s == stepAttach && (!a.running || !a.same)},
			{"another command is no conflict with itself", s == stepConflict && a.same},
			{"only an invalid command, one that the policy denies, or a durable one that was delivered too often, is buried", s == stepReject && !a.invalid && !a.denied && (!a.durable || !a.worn)},
			{"what the policy denies is not run", a.denied && s == stepRun},
			{"a full worker does not lose a durable command", a.durable && !a.worn && !a.invalid && a.full && !a.running && !a.leaving &&
				!a.unserved && !a.denied && v.Action != schemas.ActionRetry && v.Action != schemas.ActionForward},
			{"a step of a collision has no place here", s == stepReplay || s == stepLose || s == stepRerun},
		}
		for _, r := range rules {
			if r.broken {
				t.Errorf("%s: %+v gives %v", r.rule, a, s)
			}
		}
	}
	if s := admit(admission{}); s != stepRun {
		t.Errorf("a command that nothing speaks against gives %v", s)
	}
}

func TestCollideEveryCombination(t *testing.T) {
	types := []schemas.EventType{
		schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited, schemas.TypeProcessLost, schemas.TypeProcessRejected,
	}
	for n := range 1 << 4 {
		for _, last := range types {
			c := collision{unreadable: bit(n, 0), same: bit(n, 1), foreign: bit(n, 2), safe: bit(n, 3), last: last}
			s := collide(c)
			runs := s == stepRerun
			rules := []struct {
				rule   string
				broken bool
			}{
				{"the same key with another command is a conflict", !c.unreadable && !c.same && s != stepConflict},
				{"only another command is a conflict", s == stepConflict && c.same},
				{"a terminal record is followed by a run only where it is lost, and declared safe", last.Terminal() && runs && (last != schemas.TypeProcessLost || !c.safe)},
				{"nothing is run twice unless declared safe", runs && !c.safe},
				{"a safe retry never answers lost", c.safe && c.same && !c.unreadable && (s == stepLose || s == stepReplay && last == schemas.TypeProcessLost)},
				{"what has ended is never lost again", last.Terminal() && s == stepLose},
				{"what a later owner runs is left to it", c.foreign && !last.Terminal() && (runs || s == stepLose)},
				{"nothing is decided on what was not read", c.unreadable && s != stepDecline},
				{"a key that is taken never runs as if it were free", s == stepRun},
			}
			for _, r := range rules {
				if r.broken {
					t.Errorf("%s: %+v gives %v", r.rule, c, s)
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
		stepConflict: schemas.ActionDone, stepLose: schemas.ActionDone, stepRerun: schemas.ActionDone,
	}
	for s, action := range want {
		v := verdict(s, "other", why)
		if v.Action != action {
			t.Errorf("step %v is %v, want %v", s, v.Action, action)
		}
		if action == schemas.ActionDead && v.Reason != why {
			t.Errorf("step %v has no reason", s)
		}
		if action == schemas.ActionForward && v.To != "other" {
			t.Errorf("step %v goes nowhere", s)
		}
	}
}

func TestResumeEveryCombination(t *testing.T) {
	for n := range 1 << 4 {
		f := finding{unknown: bit(n, 0), ended: bit(n, 1), foreign: bit(n, 2), partial: bit(n, 3)}
		if resume(f) != (n == 0) {
			t.Errorf("%+v: %v", f, resume(f))
		}
	}
}

func TestAMarkFitsItsSessionAlone(t *testing.T) {
	m := mark{Tenant: "default", Session: "s", Epoch: 5}
	if got, ok := parseMark(m.String()); !ok || got != m {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, bad := range []string{"", "{", "{}", `{"tenant":"a.b"}`} {
		if got, ok := parseMark(bad); ok {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	for _, k := range []struct {
		what string
		s    schemas.Session
		fits bool
	}{
		{"as it was marked", schemas.Session{ID: "s", Owner: "w", Epoch: 5}, true},
		{"marked, and killed before the session was saved", schemas.Session{ID: "s", Owner: "w", Epoch: 4}, true},
		{"another owner", schemas.Session{ID: "s", Owner: "x", Epoch: 5}, false},
		{"its own again, after another's", schemas.Session{ID: "s", Owner: "w", Epoch: 7}, false},
		{"another session of the thread", schemas.Session{ID: "t", Owner: "w", Epoch: 5}, false},
		{"older than the last owner's", schemas.Session{ID: "s", Owner: "w", Epoch: 3}, false},
	} {
		if m.fits(&k.s, "w") != k.fits {
			t.Errorf("%s: %v", k.what, !k.fits)
		}
	}
}
