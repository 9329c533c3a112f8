package observe_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/observe"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: a push or pull that transferred files has a log line.
func TestTransfersAreLogged(t *testing.T) {
	var log bytes.Buffer
	o, err := observe.New(zerolog.New(&log), prometheus.NewRegistry())
	testkit.Must(t, err)
	o.Event(event(t, schemas.TypeSessionCreated, schemas.Session{ID: "s1", User: "ada"}))
	log.Reset()
	const fields = `"user":"ada","thread":"thread-7","session_id":"s1","version":"v1","files":2,"bytes":30,"duration_ms":4,`
	for typ, want := range map[schemas.EventType]string{
		schemas.TypeSyncPushed:   `{"level":"info",` + fields + `"message":"file_uploaded"}` + "\n",
		schemas.TypeSyncPulled:   `{"level":"info",` + fields + `"message":"file_downloaded"}` + "\n",
		schemas.TypeSyncConflict: "",
	} {
		o.Event(event(t, typ, schemas.SyncReport{Version: "v1", Files: 2, Bytes: 30, DurationMS: 4}))
		testkit.Equal(t, "log lines of "+string(typ), log.String(), want)
		log.Reset()
		o.Event(event(t, typ, schemas.SyncReport{Version: "v1", Deleted: 1}))
		testkit.Equal(t, "log lines of a sync without files", log.String(), "")
	}
}

// Ten minutes 15: a file that a client puts in or takes out has a log line and is counted.
func TestFilesAreLogged(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	o, err := observe.New(zerolog.New(&log), registry)
	testkit.Must(t, err)
	o.Event(event(t, schemas.TypeSessionCreated, schemas.Session{ID: "s1", User: "ada", Template: "docs"}))
	log.Reset()
	const fields = `"user":"ada","thread":"thread-7","session_id":"s1","op":%q,"path":"in/data.csv","files":1,"bytes":30,"duration_ms":4,"message":%q}` + "\n"
	for typ, line := range map[schemas.EventType]string{schemas.TypeFileUploaded: "file_uploaded", schemas.TypeFileDownloaded: "file_downloaded"} {
		op := map[schemas.EventType]schemas.FileOp{schemas.TypeFileUploaded: schemas.FileWrite, schemas.TypeFileDownloaded: schemas.FileRead}[typ]
		o.Event(event(t, typ, schemas.FileTransfer{Op: op, Path: "in/data.csv", Transfer: "w1", Files: 1, Bytes: 30, DurationMS: 4}))
		testkit.Equal(t, "log lines of "+string(typ), log.String(), fmt.Sprintf(`{"level":"info",`+fields, op, line))
		log.Reset()
	}
}
