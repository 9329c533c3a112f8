package events

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// matches reports whether NATS delivers a subject to a subscription on a pattern.
func matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, t := range p {
		switch {
		case t == ">":
			return len(s) > i
		case i >= len(s), t != "*" && t != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

func TestPublishedSubjectsMatchTheirSubscriptions(t *testing.T) {
	s := NewSubjects("cell-1")
	streams := s.Streams()
	command, rpc := s.Command("ten", "thr", schemas.OpExec), s.RPC("ten", "thr", schemas.OpExec)
	control := s.Control("ten", "thr", "pro", VerbKill)
	log := s.Log("ten", "thr", "pro", schemas.Stderr)
	check := func(subject string, patterns ...string) {
		t.Helper()
		for _, p := range patterns {
			if !matches(p, subject) {
				t.Errorf("subject %s does not match %s", subject, p)
			}
		}
	}
	check(command, streams.Commands())
	check(rpc, s.ThreadRPCs("ten", "thr"))
	check(control, s.ThreadControls("ten", "thr"))
	check(log, streams.Logs(), s.Log("ten", "thr", "pro", ""))
	check(strings.Replace(log, ".log.", ".tail.", 1), s.Tail("ten", "thr", "pro"))
	message := s.Message("ten", "thr", "pro", schemas.RoleAgent)
	check(message, streams.Messages(), s.Messages("ten", "thr"))
	check(strings.Replace(message, ".msg.", ".said.", 1), s.Said("ten", "thr"))
	check(s.API("ten", "place"), s.AnyAPI("place"))
	check(s.DeadLetter("ten", "thr"), streams.DeadLetters())
	for _, typ := range schemas.EventTypes() {
		process := "pro"
		if !typ.OfProcess() {
			process = ""
		}
		ev := s.Event("ten", "thr", process, typ)
		check(ev, streams.Events(), s.Events("ten", "thr", process), s.Events("ten", "", ""))
		feed := strings.Replace(ev, ".evt.", ".feed.", 1)
		check(feed, s.Feed("ten", "thr", process), s.Feed("ten", "", ""))
		records := []string{s.Record("ten", "thr", "pro"), s.AnyRecord("ten", "pro"), streams.Records()}
		if typ.OfProcess() {
			check(ev, records...)
			continue
		}
		for _, p := range records {
			if matches(p, ev) {
				t.Errorf("subject %s matches the records %s, want no match", ev, p)
			}
		}
	}
	for _, plane := range []string{command, rpc, control, log, message, s.Event("ten", "thr", "pro", schemas.TypeProcessExited)} {
		n := 0
		for _, all := range []string{streams.Commands(), streams.Events(), streams.Logs(), streams.Messages(), streams.DeadLetters()} {
			if matches(all, plane) {
				n++
			}
		}
		if n > 1 {
			t.Errorf("subject %s is in %d streams, want at most 1", plane, n)
		}
	}
}

func TestSubjectsAreParsed(t *testing.T) {
	s := NewSubjects("local")
	stored := s.root + ".cmdp.3.ten.thr.exec"
	for _, subject := range []string{stored, s.RPC("ten", "thr", schemas.OpExec)} {
		tenant, thread, op, ok := s.ParseCommand(subject)
		if !ok || tenant != "ten" || thread != "thr" || op != schemas.OpExec {
			t.Errorf("ParseCommand(%s) = %q, %q, %q, %t, want ten, thr, exec, true", subject, tenant, thread, op, ok)
		}
	}
	if !matches(s.Streams().PartitionCommands(3), stored) || matches(s.Streams().PartitionCommands(1), stored) {
		t.Errorf("subject %s must match partition 3 and not partition 1", stored)
	}
	tenant, thread, process, verb, ok := s.parseControl(s.Control("ten", "thr", "pro", VerbStdin))
	if !ok || tenant != "ten" || thread != "thr" || process != "pro" || verb != VerbStdin {
		t.Errorf("parseControl = %q, %q, %q, %q, %t, want ten, thr, pro, stdin, true", tenant, thread, process, verb, ok)
	}
	h := nats.Header{headerOffset: {"5"}, headerChunk: {"2"}, headerEpoch: {"3"}}
	k, ok := s.decodeChunk(9, s.Log("ten", "thr", "pro", schemas.Stderr), h, []byte("abc"))
	testkit.Equal(t, "chunk is valid", ok, true)
	testkit.Equal(t, "chunk", k, schemas.Chunk{Seq: 9, Thread: "thr", Process: "pro", Stream: schemas.Stderr, Offset: 5, Data: []byte("abc"), Number: 2, Epoch: 3})
	for _, strange := range []string{"", ".", "sluice.v1.local", "sluice.v1.other.ten.rpc.thr.exec", s.root + ".cmdp", s.root + ".ten.evt.thr.exec", s.root + ".ten.rpc.thr", s.root + ".ten.rpc.a.b.c"} {
		if _, _, _, ok := s.ParseCommand(strange); ok {
			t.Errorf("ParseCommand(%q): ok = true, want false", strange)
		}
		if _, _, _, _, ok := s.parseControl(strange); ok {
			t.Errorf("parseControl(%q): ok = true, want false", strange)
		}
		if _, ok := s.decodeChunk(1, strange, h, nil); ok {
			t.Errorf("decodeChunk(%q): ok = true, want false", strange)
		}
	}
	for _, offset := range []string{"", "-1", "x", "9223372036854775807", "99999999999999999999"} {
		if _, ok := s.decodeChunk(1, s.Log("ten", "thr", "pro", schemas.Stdout), nats.Header{headerOffset: {offset}}, []byte("abc")); ok {
			t.Errorf("decodeChunk with offset %q: ok = true, want false", offset)
		}
	}
}

func FuzzSubjects(f *testing.F) {
	s := NewSubjects("local")
	f.Add(s.RPC("ten", "thr", schemas.OpExec), "1", "1", []byte("x"))
	f.Add(s.Control("ten", "thr", "pro", VerbKill), "-1", "", []byte(nil))
	f.Add(s.Log("ten", "thr", "pro", schemas.Stdout), "9223372036854775807", "0", []byte("x"))
	f.Add(s.root+".cmdp....", "", "", []byte(nil))
	in := (&Conn{layout: layout{subjects: s}}).Worker().NewListener("w")
	f.Fuzz(func(t *testing.T, subject, offset, number string, data []byte) {
		if _, thread, _, ok := s.ParseCommand(subject); ok && strings.Contains(thread, ".") {
			t.Errorf("thread = %q, want one token", thread)
		}
		s.parseControl(subject)
		h := nats.Header{headerOffset: {offset}, headerChunk: {number}, headerEpoch: {number}}
		if k, ok := s.decodeChunk(1, subject, h, data); ok && (k.Offset < 0 || k.End() < k.Offset) {
			t.Errorf("chunk from %d to %d, want 0 <= from <= to", k.Offset, k.End())
		}
		if d := in.decode(subject, data, nil); (d.Command == nil) == (d.Invalid == nil) {
			t.Errorf("delivery = %+v, want either a command or an error", d)
		}
	})
}
