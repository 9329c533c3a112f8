package history

import (
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func TestReadReadsEveryStream(t *testing.T) {
	ctx := testkit.Context(t)
	ns, err := server.NewServer(&server.Options{
		JetStream: true, StoreDir: filepath.Join(t.TempDir(), "nats"), Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
	})
	testkit.Must(t, err)
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	if !ns.ReadyForConnections(testkit.Timeout) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(ns.ClientURL(), nats.Timeout(testkit.Timeout))
	testkit.Must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	testkit.Must(t, err)
	for _, s := range []jetstream.StreamConfig{
		{
			Name: "sluice-c-CMD", Retention: jetstream.WorkQueuePolicy, Subjects: []string{"sluice.v1.c.*.cmd.*.*"},
			SubjectTransform: &jetstream.SubjectTransformConfig{
				Source: "sluice.v1.c.*.cmd.*.*", Destination: "sluice.v1.c.cmdp.0.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}",
			},
		},
		{Name: "sluice-c-EVT", Subjects: []string{"sluice.v1.c.*.evt.>"}},
		{Name: "sluice-c-LOG", Subjects: []string{"sluice.v1.c.*.log.>"}},
		{Name: "sluice-c-DLQ", Subjects: []string{"sluice.v1.c.*.dlq.>"}},
		// MSG is created with the first message: here is none.
	} {
		_, err := js.CreateStream(ctx, s)
		testkit.Must(t, err)
	}
	publish := func(subject string, data []byte, header nats.Header) {
		_, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data, Header: header})
		testkit.Must(t, err)
	}
	cmd := &schemas.Command{SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: "t", Key: "k", Exec: execOf("true")}
	body, err := schemas.EncodeCommand(cmd)
	testkit.Must(t, err)
	process := schemas.ProcessID("acme", "t", "k")
	event := func(typ schemas.EventType, data any) {
		ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, Type: typ, Thread: "t", Process: process, Source: "w1"}
		testkit.Must(t, ev.SetData(data))
		body, err := ev.Encode()
		testkit.Must(t, err)
		publish("sluice.v1.c.acme.evt.t."+process+"."+string(typ), body, nil)
	}
	publish("sluice.v1.c.other.evt.t.p.process.accepted", []byte("of another tenant"), nil)
	event(schemas.TypeProcessAccepted, schemas.Accepted{Fingerprint: cmd.Fingerprint(), Epoch: 3})
	event(schemas.TypeLogGap, schemas.LogGap{Stream: schemas.Stdout, To: 5})
	event(schemas.TypeProcessExited, schemas.Result{Fingerprint: cmd.Fingerprint(), Epoch: 3, Reason: schemas.ReasonExited, ExitCode: 4})
	event(schemas.TypeStreamFinished, schemas.StreamFinish{Process: process})
	chunk := nats.Header{"Sluice-Offset": {"5"}, "Sluice-Chunk": {"2"}, "Sluice-Epoch": {"3"}}
	publish("sluice.v1.c.acme.log.t."+process+".stdout", []byte("out"), chunk)
	publish("sluice.v1.c.acme.cmd.t.exec", body, nil)
	publish("sluice.v1.c.acme.dlq.t", body, nats.Header{"Sluice-Reason": {"refused"}})

	h, err := Read(ctx, js, "c", "acme")
	testkit.Must(t, err)
	testkit.Equal(t, "records", len(h.Records), 2)
	testkit.Equal(t, "fingerprint", h.Records[0].Fingerprint, cmd.Fingerprint())
	testkit.Equal(t, "epoch", h.Records[1].Epoch, uint64(3))
	testkit.Equal(t, "exit code", h.Records[1].Result.ExitCode, 4)
	testkit.Equal(t, "gaps", h.Gaps, map[string][]schemas.LogGap{process: {{Stream: schemas.Stdout, To: 5}}})
	testkit.Equal(t, "finished", h.Finished, map[string]bool{process: true})
	testkit.Equal(t, "chunks", h.Chunks, []schemas.Chunk{
		{Seq: 1, Thread: "t", Process: process, Stream: schemas.Stdout, Offset: 5, Number: 2, Epoch: 3, Data: []byte("out")},
	})
	testkit.Equal(t, "waiting", h.Waiting, []Command{{Seq: 1, Process: process, Fingerprint: cmd.Fingerprint()}})
	testkit.Equal(t, "dead", h.Dead, []Command{{Seq: 1, Process: process, Fingerprint: cmd.Fingerprint(), Reason: "refused"}})
	testkit.Equal(t, "first event", h.FirstEvent, uint64(1))

	publish("sluice.v1.c.acme.evt.t.p.process.accepted", []byte("not an event"), nil)
	if _, err := Read(ctx, js, "c", "acme"); err == nil {
		t.Error("no error for a message that is not of the contract")
	}
}
