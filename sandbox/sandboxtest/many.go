package sandboxtest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// fds counts the supervisor's open descriptors.
const fds = `ls /proc/$PPID/fd | wc -l`

func (b *box) count(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(b.say(t, fds)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kept fails when the supervisor has many more descriptors than before. A few come and go with the process that counts; after
// twice as many processes as allowed, one leaked by each would show.
func (b *box) kept(t *testing.T, before, allowed int) {
	t.Helper()
	if n := b.count(t); n > before+allowed {
		t.Errorf("the supervisor has %d descriptors, and had %d", n, before)
	}
}

// Many processes in one sandbox.
var manyTests = []test{
	{"InARow", func(t *testing.T, b *box) {
		b.say(t, "true")
		before := b.count(t)
		for i := range 200 {
			b.sh(t, fmt.Sprintf("exit %d", i%200)).ends(t, schemas.ReasonExited, i%200)
		}
		for range 10 {
			b.fails(t, sandbox.Command{Path: "/dev/null"}, schemas.ExitNotExecutable, "/dev/null")
		}
		b.kept(t, before, 100)
		b.alone(t)
	}},
	{"AtATime", func(t *testing.T, b *box) {
		before := b.count(t)
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				for i := range 5 {
					cmd := shell("(sleep 300 &); cat; echo $1 >&2; exit $2", fmt.Sprint(worker), fmt.Sprint(i))
					cmd.ID, cmd.Stdin = b.id(), true
					p, err := b.Start(b.ctx, cmd)
					if err != nil {
						t.Error(err)
						return
					}
					one := &run{Process: p, ctx: b.ctx}
					if err := one.check(worker, i); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		b.kept(t, before, 40)
		b.alone(t)
	}},
	{"UnattendedOutputAtATime", func(t *testing.T, b *box) {
		var runs []*run
		for range 4 {
			runs = append(runs, b.sh(t, "head -c 10000000 /dev/zero; echo end >&2"))
		}
		for _, r := range runs {
			r.ends(t, schemas.ReasonExited, 0)
			if r.stdout.Len() != 10000000 || r.stderr.String() != "end\n" {
				t.Errorf("%d bytes and %q", r.stdout.Len(), r.stderr.String())
			}
		}
	}},
}

// check is what one of many processes does, outside the test's own goroutine.
func (r *run) check(worker, i int) error {
	text := strings.Repeat(fmt.Sprintf("%d.%d\n", worker, i), 2000)
	if err := r.WriteStdin(r.ctx, []byte(text)); err != nil {
		return err
	}
	if err := r.CloseStdin(); err != nil {
		return err
	}
	for {
		out, err := r.Read(r.ctx)
		if err != nil {
			break
		}
		if out.Stream == schemas.Stderr {
			r.stderr.Write(out.Data)
		} else {
			r.stdout.Write(out.Data)
		}
		if err := r.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil {
			return err
		}
	}
	exit, err := r.Wait(r.ctx)
	if err != nil {
		return err
	}
	if exit.Code != i || r.stdout.String() != text || r.stderr.String() != fmt.Sprintln(worker) {
		return fmt.Errorf("worker %d, run %d: %+v, %d bytes, %q", worker, i, exit, r.stdout.Len(), r.stderr.String())
	}
	return nil
}
