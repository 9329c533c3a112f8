package events

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestControlMessagesReachTheOwner(t *testing.T) {
	n, c := connected(t, false)
	ctx := testkit.Context(t)
	r := ref("t", "p")
	testkit.WantCode(t, c.Kill(ctx, r, schemas.KillRequest{}), schemas.CodeNotFound)
	var got []string
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.onControl = func(ctl schemas.Control) error {
			switch {
			case ctl.Signal != nil:
				if ctl.Signal.Signal == "SIGNONE" {
					return schemas.Errorf(schemas.CodeInvalidArgument, "no such signal").With("path", "signal")
				}
				got = append(got, ctl.Signal.Signal)
			case ctl.Kill != nil:
				got = append(got, fmt.Sprint("kill ", ctl.Kill.GraceMS))
			case ctl.Stdin != nil:
				got = append(got, fmt.Sprintf("stdin of %q %d %s %t", ctl.Stdin.Writer, ctl.Stdin.Offset, ctl.Stdin.Data, ctl.Stdin.End))
			case ctl.Resize != nil:
				got = append(got, fmt.Sprintf("resize %dx%d", ctl.Resize.Rows, ctl.Resize.Cols))
			}
			return nil
		}
	})
	testkit.Must(t, w.listener.Threads.Subscribe(ctx, "default", "t"))
	testkit.Must(t, w.listener.Threads.Subscribe(ctx, "default", "t")) // again: nothing arrives twice
	testkit.Must(t, c.Signal(ctx, r, schemas.SignalRequest{Signal: "SIGINT"}))
	testkit.Must(t, c.Kill(ctx, r, schemas.KillRequest{GraceMS: 5}))
	testkit.Must(t, c.WriteStdin(ctx, r, schemas.StdinPiece{Writer: "w", Offset: 7, Data: []byte("in"), End: true}))
	testkit.Must(t, c.WriteStdin(ctx, r, schemas.StdinPiece{Data: []byte("x")}))
	testkit.Must(t, c.Resize(ctx, r, schemas.TerminalSize{Rows: 4096, Cols: 1}))
	testkit.Equal(t, "control messages", got, []string{"SIGINT", "kill 5", `stdin of "w" 7 in true`, `stdin of "" 0 x false`, "resize 4096x1"})
	for _, size := range []schemas.TerminalSize{{}, {Rows: 65535, Cols: 65535}, {Rows: 24}, {Rows: -1, Cols: 80}} {
		testkit.WantCode(t, c.Resize(ctx, r, size), schemas.CodeInvalidArgument)
	}
	testkit.WantCode(t, c.WriteStdin(ctx, r, schemas.StdinPiece{Writer: "a b"}), schemas.CodeInvalidArgument)
	err := c.Signal(ctx, r, schemas.SignalRequest{Signal: "SIGNONE"})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	testkit.Equal(t, "detail path of the error", schemas.AsError(err).Details["path"], "signal")
	testkit.WantCode(t, c.Kill(ctx, r, schemas.KillRequest{GraceMS: -1}), schemas.CodeInvalidArgument)
	testkit.WantCode(t, c.WriteStdin(ctx, r, schemas.StdinPiece{Offset: -1}), schemas.CodeInvalidArgument)
	testkit.WantCode(t, c.WriteStdin(ctx, r, schemas.StdinPiece{Data: make([]byte, MaxStdinPiece+1)}), schemas.CodeTooLarge)
	testkit.WantCode(t, c.control(ctx, r, "dance", nil, nil), schemas.CodeInvalidArgument)
	testkit.WantCode(t, c.control(ctx, r, VerbKill, nil, []byte("{")), schemas.CodeInvalidArgument)
	testkit.WantCode(t, c.control(ctx, r, VerbStdin, nil, []byte("x")), schemas.CodeInvalidArgument)
	testkit.WantCode(t, c.control(ctx, ref("t", "b$d"), VerbKill, nil, []byte("{}")), schemas.CodeInvalidArgument)
	w.listener.Threads.Unsubscribe("default", "t")
	testkit.Must(t, w.conn.Flush(ctx))
	testkit.WantCode(t, c.Kill(ctx, r, schemas.KillRequest{}), schemas.CodeNotFound)
}
