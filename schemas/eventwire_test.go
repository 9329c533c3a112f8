package schemas

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// slowly is an event as encoding/json writes it.
func slowly(t testing.TB, e *Event) []byte {
	t.Helper()
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func wireEvent() *Event {
	return &Event{
		SpecVersion: EventSpecVersion, ID: "01J", Source: "w", Type: TypeProcessExited, Subject: "p", Time: time.Unix(1, 5000).UTC(),
		Tenant: "default", Thread: "t", Session: "s", Process: "p", Data: json.RawMessage(`{"exit_code":0,"stdout":"a}\"b"}`),
	}
}

// TestEventWireHasEveryField fails when a field is added to Event and not to its wire form.
func TestEventWireHasEveryField(t *testing.T) {
	full := wireEvent()
	full.Seq = 7
	v := reflect.ValueOf(full).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() {
			t.Fatalf("the test sets no %s", f.Name)
		}
	}
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		e := *full
		reflect.ValueOf(&e).Elem().Field(i).SetZero()
		if got, ok := e.append(nil); !ok || !bytes.Equal(got, slowly(t, &e)) {
			t.Errorf("without %s: %s, %v", v.Type().Field(i).Name, got, ok)
		}
	}
	stored := wireEvent()
	got, ok := parseEvent(slowly(t, stored))
	if !ok || !reflect.DeepEqual(got, stored) {
		t.Errorf("%+v, %v", got, ok)
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
				t.Errorf("%s\n%s, %v", got, want, err)
			}
		}
	})
}

func FuzzEventDecode(f *testing.F) {
	f.Add(slowly(f, wireEvent()))
	f.Add([]byte(`{"specversion":"1.0","id":"i","source":"w","type":"a.b","subject":"s","time":"2026-01-01T00:00:00Z","tenant":"t","thread":"t","data":{}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"i","source":"w","type":"a.b","subject":"s","time":"2026-01-01T00:00:00,5Z","tenant":"t","thread":"t","data":{},"id":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := parseEvent(body)
		if !ok {
			return
		}
		var want Event
		if err := json.Unmarshal(body, &want); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s\n%+v\n%+v, %v", body, got, want, err)
		}
	})
}

func TestEventOfAResult(t *testing.T) {
	e := wireEvent()
	want := Result{Process: "p", ExitCode: 3, Reason: ReasonExited, Args: []string{"a"}, Timestamp: time.Unix(1, 0).UTC()}
	if err := e.SetData(&want); err != nil {
		t.Fatal(err)
	}
	body, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeEvent(body)
	if err != nil {
		t.Fatal(err)
	}
	var made, got Result
	if err := e.Decode(&made); err != nil || !reflect.DeepEqual(made, want) {
		t.Errorf("%+v, %v", made, err)
	}
	if err := read.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := e.SetData(func() {}); CodeOf(err) != CodeInternal {
		t.Error(err)
	}
}
