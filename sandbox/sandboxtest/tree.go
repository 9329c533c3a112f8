package sandboxtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What becomes of descendants.
var treeTests = []test{
	{"LeftBehind", func(t *testing.T, b *box) {
		exit := b.sh(t, "sleep 300 & sleep 300 & exit 3").ends(t, schemas.ReasonExited, 3)
		if exit.Killed != 2 {
			t.Errorf("killed %d of the two left behind", exit.Killed)
		}
		b.alone(t)
	}},
	{"OwnSession", func(t *testing.T, b *box) {
		exit := b.sh(t, "setsid sh -c 'echo >>up; exec sleep 300' & "+waitFor(1)+"; exit 0").ends(t, schemas.ReasonExited, 0)
		if exit.Killed != 1 {
			t.Errorf("killed %d", exit.Killed)
		}
		b.alone(t)
	}},
	{"Daemons", func(t *testing.T, b *box) {
		// Forked twice, each in a session of its own: nothing but the environment still says whose they are.
		daemon := `(setsid sh -c '(setsid sh -c "sleep 300 & echo >>up; exec sleep 300" >/dev/null 2>&1 </dev/null &)' &)`
		other := b.start(t, sandbox.Command{Path: "cat", Stdin: true})
		r := b.sh(t, daemon+"; "+daemon+"; "+waitFor(2)+"; exit 0")
		exit := r.ends(t, schemas.ReasonExited, 0)
		if exit.Killed < 4 {
			t.Errorf("killed %d of four", exit.Killed)
		}
		if err := other.CloseStdin(); err != nil {
			t.Error(err)
		}
		other.ends(t, schemas.ReasonExited, 0)
		b.alone(t)
	}},
	{"DaemonsInKill", func(t *testing.T, b *box) {
		r := b.sh(t, `(setsid sh -c '(setsid sh -c "echo >>up; exec sleep 300" &)' &); setsid sh -c 'echo >>up; exec sleep 300' & `+waitFor(2)+`; echo ready; sleep 300`)
		r.until(t, "ready")
		if err := r.Kill(0); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonKilled, 137)
		b.alone(t)
	}},
	{"Unattributable", func(t *testing.T, b *box) {
		other := b.start(t, sandbox.Command{Path: "cat", Stdin: true})
		r := b.sh(t, `(setsid env -i PATH="$PATH" sh -c '(setsid sh -c "echo >>up; exec sleep 300" </dev/null &)' &); `+waitFor(1)+`; exit 0`)
		r.finish(t)
		if err := other.CloseStdin(); err != nil {
			t.Error(err)
		}
		other.ends(t, schemas.ReasonExited, 0)
		b.alone(t)
	}},
	{"UnattributableAlone", func(t *testing.T, b *box) {
		b.sh(t, `setsid env -i /bin/sleep 300 >/dev/null 2>&1 & exit 0`).ends(t, schemas.ReasonExited, 0)
		b.alone(t)
	}},
	{"OrphansOfARunningProcess", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{Path: "sh", Stdin: true, Args: []string{"-c",
			`(setsid sleep 300 >/dev/null 2>&1 & echo $! >pid); echo ready; read x; kill -0 $(cat pid) && echo alive`}})
		r.until(t, "ready")
		b.say(t, "true")
		b.sh(t, "sleep 300 & exit 0").ends(t, schemas.ReasonExited, 0)
		if err := r.WriteStdin(b.ctx, []byte("\n")); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonExited, 0)
		is(t, "output", r.stdout.String(), "ready\nalive\n")
		b.alone(t)
	}},
	{"KillWithGrace", func(t *testing.T, b *box) {
		r := b.sh(t, `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
		r.until(t, "ready")
		if err := r.Kill(Patience); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonExited, 5)
		is(t, "output", r.stdout.String(), "ready\nbye\n")
	}},
	{"GraceIsForTheWholeTree", func(t *testing.T, b *box) {
		r := b.sh(t, `sh -c 'trap "sleep 0.1; echo child; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait`)
		r.until(t, "ready")
		if err := r.Kill(Patience); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonKilled, 143)
		is(t, "output", r.stdout.String(), "ready\nchild\n")
	}},
	{"TermIgnored", func(t *testing.T, b *box) {
		r := b.sh(t, `trap '' TERM; (setsid sleep 300 &) ; sleep 300 & echo ready; while :; do sleep 300; done`)
		r.until(t, "ready")
		if err := r.Kill(50 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonKilled, 137)
		b.alone(t)
	}},
	{"KillHastens", func(t *testing.T, b *box) {
		r := b.sh(t, `trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done`)
		r.until(t, "ready")
		if err := r.Kill(time.Hour); err != nil {
			t.Fatal(err)
		}
		r.until(t, "asked")
		if err := r.Kill(0); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonKilled, 137)
	}},
	{"Stopped", func(t *testing.T, b *box) {
		r := b.sh(t, `trap 'echo bye; exit 6' TERM; echo ready; while :; do kill -STOP $$; done`)
		r.until(t, "ready")
		if err := r.Kill(Patience); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonExited, 6)
	}},
	{"RunsAway", func(t *testing.T, b *box) {
		// A chain whose links each leave their session and end: always on the move, and never more than a few at once, since a
		// provider without a pids limit has nothing that would stop a tree that grows.
		// Each forks its successor, in a session of its own, and is gone: whoever is listed is not there any more.
		b.file(t, "fork.sh", []byte("echo x\nsetsid sh ./fork.sh &\nsleep 0.001\n"), 0o644)
		r := b.sh(t, "sh ./fork.sh & sh ./fork.sh & sh ./fork.sh & sleep 300")
		r.until(t, strings.Repeat("x\n", 20))
		if err := r.Kill(0); err != nil {
			t.Fatal(err)
		}
		if exit := r.finish(t); exit.Reason != schemas.ReasonKilled {
			t.Errorf("%+v", exit)
		}
		b.alone(t)
	}},
}

// waitFor is shell that waits until n daemons have each added a line to the file up.
func waitFor(n int) string {
	return fmt.Sprintf(`while [ "$(cat up 2>/dev/null | wc -l)" -lt %d ]; do :; done`, n)
}
