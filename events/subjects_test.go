package events

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// matches says whether a subject is one of a pattern's, as NATS has it.
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

func TestEachPublishFormHasItsListeners(t *testing.T) {
	s := NewSubjects("cell-1")
	command, rpc := s.Command("ten", "thr", schemas.OpExec), s.RPC("ten", "thr", schemas.OpExec)
	control := s.Control("ten", "thr", "pro", VerbKill)
	log := s.Log("ten", "thr", "pro", schemas.Stderr)
	check := func(subject string, patterns ...string) {
		t.Helper()
		for _, p := range patterns {
			if !matches(p, subject) {
				t.Errorf("%s is not one of %s", subject, p)
			}
		}
	}
	check(command, s.AllCommands())
	check(rpc, s.ThreadRPCs("ten", "thr"))
	check(control, s.ThreadControls("ten", "thr"))
	check(log, s.AllLogs(), s.ProcessLog("ten", "thr", "pro"))
	check(strings.Replace(log, ".log.", ".tail.", 1), s.Tail("ten", "thr", "pro"))
	message := s.Message("ten", "thr", "pro", schemas.RoleAgent)
	check(message, s.AllMessages(), s.Messages("ten", "thr"))
	check(strings.Replace(message, ".msg.", ".said.", 1), s.Said("ten", "thr"))
	check(s.API("ten", "place"), s.AnyAPI("place"))
	check(s.DeadLetter("ten", "thr"), s.AllDeadLetters())
	for _, typ := range schemas.EventTypes() {
		process := "pro"
		if !typ.OfProcess() {
			process = ""
		}
		ev := s.Event("ten", "thr", process, typ)
		check(ev, s.AllEvents(), s.Events("ten", "thr", process), s.Events("ten", "", ""))
		feed := strings.Replace(ev, ".evt.", ".feed.", 1)
		check(feed, s.Feed("ten", "thr", process), s.Feed("ten", "", ""))
		records := []string{s.Record("ten", "thr", "pro"), s.AnyRecord("ten", "pro"), s.AllRecords(), s.ThreadRecords("ten", "thr")}
		if typ.OfProcess() {
			check(ev, records...)
			check(feed, s.FeedRecord("ten", "thr", "pro"))
			continue
		}
		for _, p := range records {
			if matches(p, ev) {
				t.Errorf("%s is taken for a record by %s", ev, p)
			}
		}
	}
	for _, plane := range []string{command, rpc, control, log, message, s.Event("ten", "thr", "pro", schemas.TypeProcessExited)} {
		n := 0
		for _, all := range []string{s.AllCommands(), s.AllEvents(), s.AllLogs(), s.AllMessages(), s.AllDeadLetters()} {
			if matches(all, plane) {
				n++
			}
		}
		if n > 1 {
			t.Errorf("%s is in %d streams", plane, n)
		}
	}
}

func TestSubjectsAreReadBack(t *testing.T) {
	s := NewSubjects("local")
	stored := s.root + ".cmdp.3.ten.thr.exec"
	for _, subject := range []string{stored, s.RPC("ten", "thr", schemas.OpExec)} {
		tenant, thread, op, ok := s.ParseCommand(subject)
		if !ok || tenant != "ten" || thread != "thr" || op != schemas.OpExec {
			t.Errorf("%s: %q %q %q %t", subject, tenant, thread, op, ok)
		}
	}
	if !matches(s.PartitionCommands(3), stored) || matches(s.PartitionCommands(1), stored) {
		t.Error("a partition's filter does not match its commands alone")
	}
	tenant, thread, process, verb, ok := s.parseControl(s.Control("ten", "thr", "pro", VerbStdin))
	if !ok || tenant != "ten" || thread != "thr" || process != "pro" || verb != VerbStdin {
		t.Errorf("%q %q %q %q %t", tenant, thread, process, verb, ok)
	}
	h := nats.Header{headerOffset: {"5"}, headerChunk: {"2"}, headerEpoch: {"3"}}
	k, ok := s.chunkOf(9, s.Log("ten", "thr", "pro", schemas.Stderr), h, []byte("abc"))
	if !ok || k.Seq != 9 || k.Thread != "thr" || k.Process != "pro" || k.Stream != schemas.Stderr || k.End() != 8 || k.Number != 2 || k.Epoch != 3 {
		t.Errorf("%+v %t", k, ok)
	}
	for _, strange := range []string{"", ".", "sluice.v1.local", "sluice.v1.other.ten.rpc.thr.exec", s.root + ".cmdp", s.root + ".ten.evt.thr.exec", s.root + ".ten.rpc.thr", s.root + ".ten.rpc.a.b.c"} {
		if _, _, _, ok := s.ParseCommand(strange); ok {
			t.Errorf("%q is taken for a command", strange)
		}
		if _, _, _, _, ok := s.parseControl(strange); ok {
			t.Errorf("%q is taken for a control message", strange)
		}
		if _, ok := s.chunkOf(1, strange, h, nil); ok {
			t.Errorf("%q is taken for output", strange)
		}
	}
	for _, offset := range []string{"", "-1", "x", "9223372036854775807", "99999999999999999999"} {
		if _, ok := s.chunkOf(1, s.Log("ten", "thr", "pro", schemas.Stdout), nats.Header{headerOffset: {offset}}, []byte("abc")); ok {
			t.Errorf("the offset %q is taken", offset)
		}
	}
}

func FuzzSubjects(f *testing.F) {
	s := NewSubjects("local")
	f.Add(s.RPC("ten", "thr", schemas.OpExec), "1", "1", []byte("x"))
	f.Add(s.Control("ten", "thr", "pro", VerbKill), "-1", "", []byte(nil))
	f.Add(s.Log("ten", "thr", "pro", schemas.Stdout), "9223372036854775807", "0", []byte("x"))
	f.Add(s.root+".cmdp....", "", "", []byte(nil))
	in := (&Conn{Subjects: s}).NewInlet("w")
	f.Fuzz(func(t *testing.T, subject, offset, number string, data []byte) {
		if _, thread, _, ok := s.ParseCommand(subject); ok && strings.Contains(thread, ".") {
			t.Errorf("thread %q", thread)
		}
		s.parseControl(subject)
		h := nats.Header{headerOffset: {offset}, headerChunk: {number}, headerEpoch: {number}}
		if k, ok := s.chunkOf(1, subject, h, data); ok && (k.Offset < 0 || k.End() < k.Offset) {
			t.Errorf("chunk from %d to %d", k.Offset, k.End())
		}
		if d := in.delivery(subject, data, ""); (d.Command == nil) == (d.Invalid == nil) {
			t.Errorf("neither or both: %+v", d)
		}
	})
}
