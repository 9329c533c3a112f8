package schemas

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// marshaled is the event as encoding/json writes it.
func marshaled(t testing.TB, e *Event) []byte {
	t.Helper()
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func exitedEvent() *Event {
	return &Event{
		SpecVersion: EventSpecVersion, ID: "01J", Source: "w", Type: TypeProcessExited, Subject: "p", Time: time.Unix(1, 5000).UTC(),
		Tenant: "default", Thread: "t", Session: "s", Process: "p", Template: "tpl",
		Origin: Origin{TraceParent: "00-1", TraceState: "v=1", Labels: map[string]string{"b": "<é>", "a": "}"}}, Data: json.RawMessage(`{"exit_code":0,"stdout":"a}\"b"}`),
	}
}

// TestEventAppendWritesEveryField fails when a field is added to Event and not to append.
func TestEventAppendWritesEveryField(t *testing.T) {
	full := exitedEvent()
	full.Seq, full.Stored = 7, time.Unix(2, 0)
	v := reflect.ValueOf(full).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if !f.IsExported() || f.Anonymous {
			continue
		}
		if v.FieldByIndex(f.Index).IsZero() {
			t.Fatalf("the test event has no %s", f.Name)
		}
		e := *full
		reflect.ValueOf(&e).Elem().FieldByIndex(f.Index).SetZero()
		got, ok := e.append(nil)
		if !ok {
			t.Errorf("append failed without %s", f.Name)
		}
		if want := marshaled(t, &e); !bytes.Equal(got, want) {
			t.Errorf("without %s: append = %s\nwant %s", f.Name, got, want)
		}
	}
}

func TestEventParse(t *testing.T) {
	want := exitedEvent()
	got, ok := parseEvent(marshaled(t, want))
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("parseEvent = %+v, %v\nwant %+v", got, ok, want)
	}
}

func FuzzEventEncode(f *testing.F) {
	f.Add("01J", "w", "process.exited", "t", "s", "p", int64(1), int64(5), 0, uint64(0), []byte(`{"a":1}`))
	f.Add("<&>", "\u2028", "\xff", "\"\\", "\x00", "é", int64(-1e12), int64(1), 3600, uint64(9), []byte(nil))
	f.Fuzz(func(t *testing.T, id, source, typ, thread, session, process string, sec, nano int64, zone int, seq uint64, data []byte) {
		e := &Event{
			SpecVersion: EventSpecVersion, ID: id, Source: source, Type: EventType(typ), Subject: thread, Tenant: source, Thread: thread,
			Time: time.Unix(sec, nano).In(time.FixedZone("", zone)), Session: session, Process: process, Seq: seq,
		}
		if compact := new(bytes.Buffer); json.Compact(compact, data) == nil && !bytes.ContainsAny(data, "<>&\u2028\u2029") {
			e.Data = compact.Bytes()
		}
		if got, ok := e.append(nil); ok {
			if want, err := json.Marshal(e); err != nil || !bytes.Equal(got, want) {
				t.Errorf("append = %s\nwant %s (error: %v)", got, want, err)
			}
		}
	})
}

func FuzzEventDecode(f *testing.F) {
	f.Add(marshaled(f, exitedEvent()))
	f.Add([]byte(`{"specversion":"1.0","id":"i","source":"w","type":"a.b","subject":"s","time":"2026-01-01T00:00:00Z","tenant":"t","thread":"t","data":{}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"i","source":"w","type":"a.b","subject":"s","time":"2026-01-01T00:00:00,5Z","tenant":"t","thread":"t","data":{},"id":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := parseEvent(body)
		if !ok {
			return
		}
		var want Event
		if err := json.Unmarshal(body, &want); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("parseEvent(%s) = %+v\nwant %+v (error: %v)", body, got, want, err)
		}
	})
}

// A Result is the same for its publisher, which skips decoding, and for a reader.
func TestEventDecodesResult(t *testing.T) {
	published := exitedEvent()
	want := Result{Process: "p", ExitCode: 3, Reason: ReasonExited, Args: []string{"a"}, Timestamp: time.Unix(1, 0).UTC()}
	if err := published.SetData(&want); err != nil {
		t.Fatal(err)
	}
	body, err := published.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeEvent(body)
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]*Event{"publisher": published, "reader": read} {
		var got Result
		if err := e.Decode(&got); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("result of the %s differs (-want +got):\n%s", name, diff)
		}
	}
	if got := CodeOf(published.SetData(func() {})); got != CodeInternal {
		t.Errorf("SetData of a function: code = %q, want internal", got)
	}
}
