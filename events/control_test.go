package events

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

func TestControl(t *testing.T) {
	n, c := connected(t, false)
	r := ref("t", "p")
	wantCode(t, c.Kill(patient(t), r, schemas.KillRequest{}), schemas.CodeNotFound)
	var got []string
	w, _ := work(t, n, "w1", func(w *owner) {
		w.obey = func(ctl schemas.Control) error {
			switch {
			case ctl.Signal != nil:
				if ctl.Signal.Signal == "SIGNONE" {
					return schemas.Errorf(schemas.CodeInvalidArgument, "no such signal").With("path", "signal")
				}
				got = append(got, ctl.Signal.Signal)
			case ctl.Kill != nil:
				got = append(got, fmt.Sprint("kill ", ctl.Kill.GraceMS))
			case ctl.Stdin != nil:
				got = append(got, fmt.Sprintf("stdin %d %s %t", ctl.Stdin.Offset, ctl.Stdin.Data, ctl.Stdin.End))
			}
			return nil
		}
	})
	must(t, w.inlet.Own(patient(t), "default", "t"))
	must(t, w.inlet.Own(patient(t), "default", "t")) // again: nothing comes twice
	must(t, c.Signal(patient(t), r, schemas.SignalRequest{Signal: "SIGINT"}))
	must(t, c.Kill(patient(t), r, schemas.KillRequest{GraceMS: 5}))
	must(t, c.WriteStdin(patient(t), r, 7, []byte("in"), true))
	if want := []string{"SIGINT", "kill 5", "stdin 7 in true"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("came %q, want %q", got, want)
	}
	err := c.Signal(patient(t), r, schemas.SignalRequest{Signal: "SIGNONE"})
	wantCode(t, err, schemas.CodeInvalidArgument)
	if schemas.AsError(err).Details["path"] != "signal" {
		t.Errorf("details are lost: %#v", err)
	}
	wantCode(t, c.Kill(patient(t), r, schemas.KillRequest{GraceMS: -1}), schemas.CodeInvalidArgument)
	wantCode(t, c.WriteStdin(patient(t), r, -1, nil, false), schemas.CodeInvalidArgument)
	wantCode(t, c.WriteStdin(patient(t), r, 0, make([]byte, MaxStdinPiece+1), false), schemas.CodeTooLarge)
	wantCode(t, c.control(patient(t), r, "dance", nil, nil), schemas.CodeInvalidArgument)
	wantCode(t, c.control(patient(t), r, VerbKill, nil, []byte("{")), schemas.CodeInvalidArgument)
	wantCode(t, c.control(patient(t), r, VerbStdin, nil, []byte("x")), schemas.CodeInvalidArgument)
	wantCode(t, c.control(patient(t), ref("t", "b$d"), VerbKill, nil, []byte("{}")), schemas.CodeInvalidArgument)
	w.inlet.Disown("default", "t")
	must(t, w.conn.Flush(patient(t)))
	wantCode(t, c.Kill(patient(t), r, schemas.KillRequest{}), schemas.CodeNotFound)
}
