package client_test

import (
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 13: a reader goes on by the offset in each stream, in the middle of a chunk too.
func TestLogsBeginAtAnOffset(t *testing.T) {
	d := newCaller(t, "w1")
	r := d.exec(client.Request{Thread: "t", Command: "sh", Args: []string{"-c", "echo 0123456789; echo abcdef >&2; sleep 0.1; echo more"}})
	for _, c := range []struct {
		stdout, stderr int64
		want           [2]string
	}{
		{0, 0, [2]string{"0123456789\nmore\n", "abcdef\n"}},
		{4, 7, [2]string{"456789\nmore\n", ""}},
		{11, 3, [2]string{"more\n", "def\n"}},
		{16, 100, [2]string{"", ""}},
	} {
		for _, follow := range []bool{false, true} {
			got := map[schemas.Stream]string{}
			next := map[schemas.Stream]int64{schemas.Stdout: c.stdout, schemas.Stderr: c.stderr}
			q := client.LogQuery{Process: r.Process, Follow: follow, StdoutFrom: c.stdout, StderrFrom: c.stderr, Gap: func(g schemas.LogGap) error {
				t.Errorf("gap = %+v, want none", g)
				return nil
			}}
			testkit.Must(t, d.Logs(d.ctx, q, func(k schemas.Chunk) error {
				testkit.Equal(t, "offset", k.Offset, next[k.Stream])
				next[k.Stream] = k.End()
				got[k.Stream] += string(k.Data)
				return nil
			}))
			testkit.Equal(t, "output", [2]string{got[schemas.Stdout], got[schemas.Stderr]}, c.want)
		}
	}
}
