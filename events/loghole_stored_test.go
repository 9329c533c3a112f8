package events

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 11: LOG has dropped the first few chunks of a process that runs. A reader that begins at the beginning gets the rest at once,
// with its offset: the writer has had the missing chunks stored, so that none of them still comes.
func TestReaderPassesDroppedChunksOfARunningProcess(t *testing.T) {
	c := newNode(t, false).connect()
	ctx, r := testkit.Context(t), ref("t", "p")
	testkit.Must(t, c.Ensure(ctx, Topology{}))
	stored := make(chan struct{}, 1)
	w := c.Open(r, func(schemas.Stream, int64) { stored <- struct{}{} })
	for i := range 5 {
		testkit.Must(t, w.Write(schemas.Stdout, int64(7*i), fmt.Appendf(nil, "line %d\n", i)))
		<-stored
	}
	log, err := c.js.Stream(ctx, c.names.log)
	testkit.Must(t, err)
	first, _, err := c.directGet(ctx, c.names.log, directRequest{Seq: 1, NextBy: c.subjects.Log(r.Tenant, r.Thread, r.Process, schemas.Stdout), Batch: 3})
	testkit.Must(t, err)
	for _, m := range first {
		testkit.Must(t, log.DeleteMsg(ctx, m.seq))
	}
	h := newCollector(t)
	_, err = c.ReadLog(ctx, r, "", 0, 0, h.add)
	testkit.Must(t, err)
	h.want(schemas.Stdout, []byte("line 3\nline 4\n"))
	testkit.Equal(t, "offset", h.from[schemas.Stdout], int64(21))
	if _, err = w.Close(); err != nil {
		t.Error(err)
	}
}
