package events

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/events/seal"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// sealKeys returns the keys of a file with these lines.
func sealKeys(t *testing.T, lines ...string) *seal.Keys {
	t.Helper()
	k, err := seal.ParseKeys([]byte(strings.Join(lines, "\n")))
	testkit.Must(t, err)
	return k
}

func sealLine(t *testing.T) string {
	t.Helper()
	line, err := seal.NewKey()
	testkit.Must(t, err)
	return line
}

// queued returns what CMD has of the last command of a thread.
func queued(t *testing.T, c *peer, thread string) (header nats.Header, body []byte) {
	t.Helper()
	s, err := c.js.Stream(testkit.Context(t), c.names.cmd)
	testkit.Must(t, err)
	m, err := s.GetLastMsgForSubject(testkit.Context(t), c.subjects.root+".cmdp.*.default."+thread+"."+string(schemas.OpExec))
	testkit.Must(t, err)
	return m.Header, m.Data
}

func secretCommand(thread string) *schemas.Command {
	cmd := command(thread, "k")
	cmd.Exec.Env = map[string]string{"TOKEN": "a-secret"}
	return cmd
}

// Hardening 7: what waits in CMD is sealed, also across a change of the key, and its fingerprint is that of the command.
func TestQueuedCommandsAreSealed(t *testing.T) {
	n, c := onePartition(t)
	first, second := sealLine(t), sealLine(t)
	testkit.Must(t, c.sealing.Ensure(t.Context(), sealKeys(t, first)))
	caller := n.connect()
	testkit.Must(t, caller.Ensure(t.Context(), Topology{Partitions: 1}))
	call := caller.call(t, secretCommand("t"))
	defer call.Close()
	testkit.Equal(t, "queued without a worker", call.Queued(), true)
	header, body := queued(t, c, "t")
	testkit.Equal(t, "key of the command in CMD", header.Get(headerSealed), sealKeys(t, first).Public().ID)
	for _, open := range []string{"a-secret", "TOKEN", "true", `"exec"`} {
		testkit.Equal(t, open+" is readable in CMD", bytes.Contains(body, []byte(open)), false)
	}

	late := n.connect()
	testkit.Must(t, late.Ensure(t.Context(), Topology{Partitions: 1}))
	testkit.WantCode(t, late.sealing.Ensure(t.Context(), nil), schemas.CodeInvalidArgument)
	testkit.WantCode(t, late.sealing.Ensure(t.Context(), sealKeys(t, second)), schemas.CodeInvalidArgument)
	testkit.Must(t, late.sealing.Ensure(t.Context(), sealKeys(t, second, first)))
	w, _ := startWorkerOn(t, late, "w1", nil)
	d := w.next(t)
	testkit.Equal(t, "environment", d.Command.Exec.Env["TOKEN"], "a-secret")
	testkit.Equal(t, "fingerprint", d.Fingerprint, secretCommand("t").Fingerprint())
	eventsUntilEnd(t, call)

	// A caller that begins now has the second key; and none once the file says so.
	again := n.connect()
	testkit.Must(t, again.sealing.Ensure(t.Context(), sealKeys(t, second)))
	key, err := again.sealing.recent(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "key of new commands", key.ID, sealKeys(t, second).Public().ID)
	testkit.Must(t, late.sealing.Ensure(t.Context(), sealKeys(t, "none", second, first)))
	key, err = n.connect().sealing.recent(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "no key", key == nil, true)
	testkit.Must(t, n.connect().sealing.Ensure(t.Context(), nil))
}

// A sealed command is no command of another thread, and one that no worker can open waits for one that can.
func TestSealedCommandsKeepTheirPlace(t *testing.T) {
	_, c := onePartition(t)
	first, second := sealLine(t), sealLine(t)
	testkit.Must(t, c.sealing.Ensure(t.Context(), sealKeys(t, first)))
	call := c.call(t, secretCommand("t"))
	defer call.Close()
	header, body := queued(t, c, "t")
	queueRaw(t, c, c.subjects.Command("default", "other", schemas.OpExec), nats.Header{headerSealed: {header.Get(headerSealed)}}, body)
	foreign := nats.Header{headerSealed: {sealKeys(t, second).Public().ID}}
	queueRaw(t, c, c.subjects.Command("default", "late", schemas.OpExec), foreign, body)
	queue(t, c, command("plain", "k"))
	w, stop := startWorkerOn(t, c, "w1", nil)
	got := map[string]bool{w.next(t).Thread: true, w.next(t).Thread: true}
	testkit.Equal(t, "threads", got, map[string]bool{"t": true, "plain": true})
	eventsUntilEnd(t, call)
	letter := awaitLetter(t, c, "other")
	testkit.Equal(t, "key of the dead letter", letter.Get(headerSealed), header.Get(headerSealed))
	testkit.Contains(t, "reason", letter.Get(headerReason), "sealed")
	stop()
	_, waits := queued(t, c, "late")
	testkit.Equal(t, "what waits", bytes.Equal(waits, body), true)
}

// TestCommandWaitsForTheStreamsOfItsCell: a command that is sent before the first worker of its cell has started waits for it.
func TestCommandWaitsForTheStreamsOfItsCell(t *testing.T) {
	t.Parallel()
	n := newNode(t, false)
	caller, sent := n.connect(), make(chan error, 1)
	go func() {
		k, err := caller.Send(testkit.Context(t), schemas.DefaultTenant, command("t", "k"))
		if err == nil {
			k.Close()
		}
		sent <- err
	}()
	testkit.Must(t, n.connect().Ensure(t.Context(), Topology{Partitions: 1}))
	testkit.Must(t, <-sent)

	alone := newNode(t, false).connect()
	_, err := alone.Send(testkit.Context(t), schemas.DefaultTenant, command("t", "k"))
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	testkit.Contains(t, "error", err.Error(), "sluice worker")
}
