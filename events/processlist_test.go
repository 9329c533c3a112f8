package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// recordsBefore returns the ids of the records before a sequence, newest first, at most n.
func recordsBefore(t *testing.T, c *peer, f Filter, before uint64, n int) (ids []string) {
	t.Helper()
	testkit.Must(t, c.Reader.RecordsBefore(testkit.Context(t), f, before, func(ev *schemas.Event) bool {
		ids = append(ids, ev.ID)
		return len(ids) < n
	}))
	return ids
}

func TestRecordsAreReadFromTheNewest(t *testing.T) {
	_, c := connected(t, false)
	testkit.Equal(t, "records of an empty stream", len(recordsBefore(t, c, Filter{}, 0, 10)), 0)
	// A thread with few records, then one with more than a window has, and events of neither between them.
	var want, rare []string
	for i := range 3000 {
		thread, id := "busy", fmt.Sprint("r", i)
		if i < 3 || i == 1500 {
			thread, rare = "rare", append(rare, id)
		}
		c.append(t, record(thread, fmt.Sprint("p", i), schemas.TypeProcessAccepted, id), 0)
		want = append(want, id)
		if i%7 == 0 {
			testkit.Must(t, c.Publish(testkit.Context(t), record(thread, "", schemas.TypeSessionCreated, fmt.Sprint("s", i))))
		}
	}
	other := record("rare", "p", schemas.TypeProcessAccepted, "of another tenant")
	other.Tenant = "other"
	c.append(t, other, 0)
	slices.Reverse(want)
	slices.Reverse(rare)
	testkit.Equal(t, "all records", recordsBefore(t, c, Filter{}, 0, 1<<20), want)
	testkit.Equal(t, "the newest records", recordsBefore(t, c, Filter{}, 0, 5), want[:5])
	testkit.Equal(t, "records of a thread with few", recordsBefore(t, c, Filter{Thread: "rare"}, 0, 1<<20), rare)
	testkit.Equal(t, "newest records of a thread with many", recordsBefore(t, c, Filter{Thread: "busy"}, 0, 2000), slices.DeleteFunc(slices.Clone(want), func(id string) bool {
		return slices.Contains(rare, id)
	})[:2000])
	testkit.Equal(t, "records of another tenant", recordsBefore(t, c, Filter{Tenant: "other"}, 0, 10), []string{"of another tenant"})
	last, err := c.Last(testkit.Context(t), schemas.DefaultTenant, "rare", "p1500")
	testkit.Must(t, err)
	testkit.Equal(t, "records before a sequence", recordsBefore(t, c, Filter{Thread: "rare"}, last.Seq, 10), rare[1:])
}

// running returns the processes that run, as WORKER:PROCESS:STATUS.
func running(t *testing.T, c *peer, f Filter) string {
	t.Helper()
	list, err := c.Reader.Running(testkit.Context(t), f, false)
	testkit.Must(t, err)
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprint(p.Worker, ":", p.Process, ":", p.Status))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Promises 2: a list of what runs is complete while workers are away.
func TestRunningIsCompleteWithoutItsWorkers(t *testing.T) {
	n, c := connected(t, false)
	ctx := testkit.Context(t)
	testkit.Equal(t, "processes without workers", running(t, c, Filter{}), "")
	// A live worker answers in pages; its records are not read.
	startWorkerOn(t, n.connect(), "live", func(w *fakeWorker) {
		w.onProcesses = func(req schemas.ProcessesRequest) schemas.ProcessesReply {
			all := []schemas.ProcessInfo{
				{Process: "l1", Thread: "t", Status: schemas.StatusRunning, Worker: "live"},
				{Process: "l2", Thread: "t", Status: schemas.StatusRunning, Worker: "live"},
			}
			all = slices.DeleteFunc(all, func(p schemas.ProcessInfo) bool {
				return p.Process <= req.After || (req.Thread != "" && req.Thread != p.Thread)
			})
			return schemas.ProcessesReply{Processes: all[:min(1, len(all))], More: len(all) > 1}
		}
	})
	// One that shuts down refuses; one that was killed is not there. What they left is on record.
	startWorkerOn(t, n.connect(), "leaving", func(w *fakeWorker) {
		w.onProcesses = func(schemas.ProcessesRequest) schemas.ProcessesReply {
			return schemas.ProcessesReply{Error: schemas.Errorf(schemas.CodeUnavailable, "leaving")}
		}
	})
	write := func(worker, process string, types ...schemas.EventType) (first uint64) {
		var last uint64
		for i, typ := range types {
			ev := record("t", process, typ, fmt.Sprint(process, i))
			ev.Source = worker
			last = c.append(t, ev, last)
			if i == 0 {
				first = last
			}
		}
		return first
	}
	write("dead", "before", schemas.TypeProcessAccepted) // before its first sequence: not its own any more
	low := write("dead", "d1", schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	write("dead", "d2", schemas.TypeProcessAccepted, schemas.TypeProcessExited)
	write("live", "l3", schemas.TypeProcessAccepted)
	late := write("leaving", "e1", schemas.TypeProcessAccepted)
	for worker, seq := range map[string]uint64{"live": 1, "leaving": late, "dead": low} {
		testkit.Must(t, c.Register(ctx, schemas.WorkerInfo{ID: worker, Incarnation: "i", LowSeq: seq}))
	}
	testkit.Equal(t, "processes", running(t, c, Filter{}), "dead:d1:running leaving:e1:starting live:l1:running live:l2:running")
	testkit.Equal(t, "processes of another thread", running(t, c, Filter{Thread: "none"}), "")
	// A reply that does not decode is an error, and no empty list.
	startWorkerOn(t, n.connect(), "old", func(w *fakeWorker) {
		w.onProcesses = func(schemas.ProcessesRequest) schemas.ProcessesReply {
			return schemas.ProcessesReply{Error: schemas.Errorf(schemas.CodeInternal, "broken")}
		}
	})
	testkit.Must(t, c.Register(ctx, schemas.WorkerInfo{ID: "old", Incarnation: "i", LowSeq: 1}))
	_, err := c.Reader.Running(ctx, Filter{}, false)
	testkit.WantCode(t, err, schemas.CodeInternal)
}
