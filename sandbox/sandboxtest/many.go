package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func (f *fixture) supervisorFDs(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(f.output(t, `ls /proc/$PPID/fd | wc -l`)))
	testkit.Must(t, err)
	return n
}

// wantNoLeak fails the test when the supervisor has more than allowed additional descriptors. The process that counts has a few; the
// test has run more than twice as many processes as allowed, so that a leak in each shows.
func (f *fixture) wantNoLeak(t *testing.T, before, allowed int) {
	t.Helper()
	if n := f.supervisorFDs(t); n > before+allowed {
		t.Errorf("the supervisor has %d descriptors and had %d, want at most %d more", n, before, allowed)
	}
}

// Many processes in one sandbox.
var manyTests = []test{
	{"Sequential", func(t *testing.T, f *fixture) {
		f.output(t, "true")
		before := f.supervisorFDs(t)
		for i := range 200 {
			f.sh(t, fmt.Sprintf("exit %d", i%200)).wantExit(t, schemas.ReasonExited, i%200)
		}
		for range 10 {
			f.wantStartError(t, sandbox.Command{Path: "/dev/null"}, schemas.ExitNotExecutable, "/dev/null")
		}
		f.wantNoLeak(t, before, 100)
		f.wantNoLeftovers(t)
	}},
	{"Concurrent", func(t *testing.T, f *fixture) {
		before := f.supervisorFDs(t)
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				for i := range 5 {
					cmd := shell("(sleep 300 &); cat; echo $1 >&2; exit $2", fmt.Sprint(worker), fmt.Sprint(i))
					cmd.ID, cmd.Stdin = f.nextID(), true
					p, err := f.Start(f.ctx, cmd)
					if err == nil {
						err = checkOne(f.ctx, p, worker, i)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		f.wantNoLeak(t, before, 40)
		f.wantNoLeftovers(t)
	}},
	{"ConcurrentUnreadOutput", func(t *testing.T, f *fixture) {
		var runs []*testProcess
		for range 4 {
			runs = append(runs, f.sh(t, "head -c 10000000 /dev/zero; echo end >&2"))
		}
		for _, r := range runs {
			r.wantExit(t, schemas.ReasonExited, 0)
			testkit.Equal(t, "bytes of stdout", r.stdout.Len(), 10000000)
			testkit.Equal(t, "stderr", r.stderr.String(), "end\n")
		}
	}},
}

// checkOne runs one of many processes to its end. It runs outside the test's goroutine, and so returns its failure.
func checkOne(ctx context.Context, p sandbox.Process, worker, i int) error {
	text := strings.Repeat(fmt.Sprintf("%d.%d\n", worker, i), 2000)
	if err := errors.Join(p.WriteStdin(ctx, []byte(text)), p.CloseStdin()); err != nil {
		return err
	}
	r, err := Finish(ctx, p)
	if err == nil && (r.Code != i || r.Stdout != text || r.Stderr != fmt.Sprintln(worker)) {
		err = fmt.Errorf("worker %d, run %d: exit = %+v with %d bytes of stdout and stderr %q, want code %d with %d bytes and %q",
			worker, i, r.Exit, len(r.Stdout), r.Stderr, i, len(text), fmt.Sprintln(worker))
	}
	return err
}
