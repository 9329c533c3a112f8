package node

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 15: a command that a worker had accepted, and not started when an outage ended its lease, runs once after the outage.
func TestAcceptedCommandStartsAfterAnOutage(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	o.templates = t.TempDir()
	began, goOn := filepath.Join(o.templates, "began"), filepath.Join(o.templates, "go")
	testkit.Must(t, syscall.Mkfifo(began, 0o600))
	yaml := "name: default\nhooks: {cold_start: [{command: [sh, -c, '[ -e " + goOn + " ] || { echo >" + began + "; sleep 300; }']}]}\n"
	testkit.Must(t, os.WriteFile(filepath.Join(o.templates, "all.yaml"), []byte(yaml), 0o600))
	w := o.worker("w1", o.connect(o))
	x, err := o.client.ExecStream(o.ctx, client.Request{Thread: "t1", Key: "k", Command: "sh", Args: []string{"-c", "echo ran >>runs; cat runs; exit 7"}})
	testkit.Must(t, err)
	t.Cleanup(x.Close)
	_, err = os.ReadFile(began) // the cold start has begun, and does not end
	testkit.Must(t, err)
	last, err := o.conn.Caller().Last(o.ctx, schemas.DefaultTenant, "t1", x.Process())
	testkit.Must(t, err)
	testkit.Equal(t, "last record", last.Type, schemas.TypeProcessAccepted)
	testkit.Must(t, os.WriteFile(goOn, nil, 0o600))
	o.stop()
	w.await("lease lost", 1)
	o.start()
	w.await("worker rejoined", 1)
	r := o.result("t1", x.Process())
	testkit.Equal(t, "end", []any{r.Reason, r.ExitCode, r.Stdout}, []any{schemas.ReasonExited, 7, "ran\n"})
	var types []schemas.EventType
	_, err = o.conn.Caller().ReadEvents(o.ctx, events.Filter{Thread: "t1", Process: x.Process()}, 1, func(ev *schemas.Event) error {
		if ev.Type.OfProcess() {
			types = append(types, ev.Type)
		}
		return nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "records", types, []schemas.EventType{schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited})
}
