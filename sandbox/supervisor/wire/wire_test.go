package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// samples are one message of each type.
func samples() []Message {
	return []Message{
		&Hello{Version: 2, PID: 2, ReattachWindow: 3},
		&Spawn{Handle: 1, ID: "id", Path: "p", Args: []string{"", "b\xff"}, Env: []string{"A=b"}, Dir: "/d", Stdin: true, Timeout: 4, Grace: 5, Rows: 6, Cols: 7},
		&Ack{Handle: 1, Stream: Stderr, Offset: 3},
		&Stdin{Handle: 1, Data: []byte("x")},
		&StdinEOF{Handle: 1},
		&Signal{Handle: 1, Seq: 2, Signal: 3},
		&Kill{Handle: 1, Grace: 2},
		&List{Usage: true},
		&Resume{Handle: 1, Stdout: 2, Stderr: 3},
		&Release{Handle: 1},
		&Terminate{Grace: 1},
		&Resize{Handle: 1, Rows: 2, Cols: 65535},
		&Connect{Seq: 1, Network: NetworkUnix, Port: 65535, Path: "/s"},
		&Spawned{Handle: 1, PID: 2, Started: -3},
		&Failed{Handle: 1, Cause: CauseBusy, Detail: "why"},
		&StdinTaken{Handle: 1, Taken: 2, Closed: true},
		&Signaled{Handle: 1, Seq: 2, Result: SignalDenied},
		&Exit{
			Handle: 1, Reason: ReasonOOM, Code: 2, Signal: 3, Stdout: 4, Stderr: 5, UserTime: 6, SystemTime: 7, MaxRSS: 8, Killed: 9,
			Started: 10, Ended: 11,
		},
		&Listed{Processes: []ProcessState{
			{Handle: 1, ID: "a", PID: 2, Ended: true, Stdout: 3, Stderr: 4, StdinTaken: 5, StdinQueued: 7, StdinClosed: true, Started: 6}, {},
		}, Usages: []Usage{{Handle: 1, CPU: 2, Memory: 3, Processes: 4}, {}}},
		&Connected{Seq: 1, Result: ConnectFailed, Detail: "why"},
	}
}

func name(m Message) string { return reflect.TypeOf(m).Elem().Name() }

// golden are the frames of a version, by message. They are never edited: a supervisor of that version sends them.
func golden(t *testing.T, file string) map[string][]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	testkit.Must(t, err)
	frames := make(map[string][]byte)
	for line := range strings.Lines(string(b)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		frames[name], err = hex.DecodeString(digits)
		testkit.Must(t, err)
	}
	return frames
}

// TestOlderFrames: the frames of earlier versions decode, without the fields that they lack.
func TestOlderFrames(t *testing.T) {
	for version := MinVersion; version < Version; version++ {
		frames := golden(t, fmt.Sprintf("testdata/version-%d.txt", version))
		for _, want := range samples() {
			frame, ok := frames[name(want)]
			if !ok {
				continue // a later version added it
			}
			switch m := want.(type) {
			case *List:
				m.Usage = m.Usage && version >= UsageVersion
			case *Listed:
				if version < UsageVersion {
					m.Usages = nil
				}
			case *Spawn:
				if version < TerminalVersion {
					m.Rows, m.Cols = 0, 0
				}
			}
			got, err := Parse(want.kind(), frame[headSize:])
			testkit.Must(t, err)
			testkit.Equal(t, fmt.Sprintf("%s from its frame of version %d", name(want), version), got, want)
		}
	}
}

// TestGoldenFrames: every message keeps the bytes of version 5, and decodes from them.
func TestGoldenFrames(t *testing.T) {
	frames := golden(t, "testdata/version-5.txt")
	for _, want := range samples() {
		frame, ok := frames[name(want)]
		if !ok {
			t.Errorf("%s has no golden frame", name(want))
			continue
		}
		delete(frames, name(want))
		const before = "before"
		testkit.Equal(t, name(want)+" frame", hex.EncodeToString(Append([]byte(before), want)[len(before):]), hex.EncodeToString(frame))
		testkit.Equal(t, name(want)+" size", Size(want), len(frame))
		r := NewReader(bytes.NewReader(frame))
		kind, n, err := r.Next()
		testkit.Must(t, err)
		testkit.Equal(t, name(want)+" type", kind, want.kind())
		testkit.Equal(t, name(want)+" payload size", n, len(frame)-headSize)
		payload := make([]byte, n)
		testkit.Must(t, r.Payload(payload))
		got, err := Parse(kind, payload)
		testkit.Must(t, err)
		testkit.Equal(t, name(want)+" from its golden frame", got, want)
	}
	output := append(make([]byte, OutputFrame), "data"...)
	(&Output{Handle: 7, Stream: Stdout, Offset: 1 << 40}).Put(output, 4)
	testkit.Equal(t, "Output frame", hex.EncodeToString(output), hex.EncodeToString(frames["Output"]))
	delete(frames, "Output")
	testkit.Equal(t, "golden frames without a sample", len(frames), 0)
}

// TestDecodeOtherVersions: a payload of a newer version decodes without its new fields, one of an older version with zeros for the
// fields it lacks; one that ends inside a field is refused.
func TestDecodeOtherVersions(t *testing.T) {
	for _, m := range samples() {
		if m.kind() == TypeStdin {
			continue // its data ends with the payload
		}
		payload := Append(nil, m)[headSize:]
		got, err := Parse(m.kind(), append(bytes.Clone(payload), 1, 2, 3))
		testkit.Must(t, err)
		testkit.Equal(t, name(m)+" with appended fields", got, m)
	}
	exit := Append(nil, &Exit{Handle: 1, Code: 2, Killed: 3, Started: 4, Ended: 5})[headSize:]
	for missing, want := range map[int]*Exit{
		8:  {Handle: 1, Code: 2, Killed: 3, Started: 4},
		16: {Handle: 1, Code: 2, Killed: 3},
		20: {Handle: 1, Code: 2},
	} {
		var got Exit
		testkit.Must(t, Decode(exit[:len(exit)-missing], &got))
		testkit.Equal(t, "Exit without its last fields", &got, want)
	}
	listed := Append(nil, &Listed{Processes: make([]ProcessState, 2)})[headSize:]
	for what, p := range map[string]struct {
		m Message
		b []byte
	}{
		"Exit that ends inside a field":              {&Exit{}, exit[:len(exit)-1]},
		"Listed that ends between members":           {&Listed{}, listed[:len(listed)-(len(listed)-4)/2]},
		"Listed that ends between a member's fields": {&Listed{}, listed[:len(listed)-8]},
		"Ack without a stream":                       {&Ack{}, exit[:8]},
	} {
		if err := Decode(p.b, p.m); err != ErrPayload {
			t.Errorf("%s: error = %v, want %v", what, err, ErrPayload)
		}
	}
}

func TestParseUnknownType(t *testing.T) {
	for _, kind := range []Type{0, 14, TypeOutput, 255} {
		if m, err := Parse(kind, nil); m != nil || err != ErrOrder {
			t.Errorf("Parse of type %d = %v, %v, want nil, %v", kind, m, err, ErrOrder)
		}
	}
}

func TestOutputFrame(t *testing.T) {
	frame := append(make([]byte, OutputFrame), "data"...)
	want := Output{Handle: 7, Stream: Stdout, Offset: 1 << 40}
	want.Put(frame, 4)
	r := NewReader(bytes.NewReader(append(frame, frame...)))
	for range 2 {
		kind, n, err := r.Next()
		testkit.Must(t, err)
		testkit.Equal(t, "type", kind, TypeOutput)
		testkit.Equal(t, "payload size", n, OutputHead+4)
		b := make([]byte, OutputHead)
		testkit.Must(t, r.Payload(b))
		var got Output
		testkit.Must(t, got.Decode(b))
		testkit.Equal(t, "head", got, want)
		// The data stays unread: Next skips it.
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("after the last frame: error = %v, want %v", err, io.EOF)
	}
	for what, bad := range map[string]Output{"stream 0": {}, "stream 3": {Stream: 3}, "negative offset": {Stream: Stdout, Offset: -1}} {
		bad.Put(frame, 4)
		if err := new(Output).Decode(frame[headSize:]); err != ErrPayload {
			t.Errorf("%s: error = %v, want %v", what, err, ErrPayload)
		}
	}
	if err := new(Output).Decode(frame[headSize : OutputFrame-1]); err != ErrPayload {
		t.Errorf("truncated head: error = %v, want %v", err, ErrPayload)
	}
	allocs := testing.AllocsPerRun(100, func() {
		var head Output
		want.Put(frame, 4)
		if err := head.Decode(frame[headSize:OutputFrame]); err != nil {
			t.Error(err)
		}
	})
	testkit.Equal(t, "allocations of Put and Decode", allocs, 0.0)
}

func TestReaderRefusesMalformedFrames(t *testing.T) {
	for what, in := range map[string]string{
		"empty frame": "\x00\x00\x00\x00\x01", "9 MiB": "\x00\x00\x90\x00\x01", "4 GiB": "\xff\xff\xff\xff\x01",
	} {
		if _, _, err := NewReader(strings.NewReader(in)).Next(); err != ErrFrameSize {
			t.Errorf("%s: error = %v, want %v", what, err, ErrFrameSize)
		}
	}
	r := NewReader(strings.NewReader("\x03\x00\x00\x00\x01a"))
	_, _, err := r.Next()
	testkit.Must(t, err)
	if err := r.Payload(make([]byte, 3)); err != ErrPayload {
		t.Errorf("payload beyond the frame: error = %v, want %v", err, ErrPayload)
	}
	if err := r.Payload(make([]byte, 2)); err != io.ErrUnexpectedEOF {
		t.Errorf("truncated frame: error = %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

// FuzzDecode: no payload makes a decoder panic. What it decodes encodes to the same bytes, but for missing and appended fields.
func FuzzDecode(f *testing.F) {
	for _, m := range samples() {
		f.Add(byte(m.kind()), Append(nil, m)[headSize:])
	}
	f.Add(byte(TypeSpawn), bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		m, err := Parse(Type(kind), payload)
		if err != nil {
			return
		}
		again := Append(nil, m)[headSize:]
		if n := min(len(again), len(payload)); !bytes.Equal(again[:n], payload[:n]) {
			t.Errorf("type %d: encoded %x, want the decoded %x", kind, again, payload)
		}
		second, err := Parse(Type(kind), again)
		testkit.Must(t, err)
		if !reflect.DeepEqual(second, m) {
			t.Errorf("type %d: decoded again as %+v, want %+v", kind, second, m)
		}
	})
}

// FuzzReader: every stream ends, without more memory than its length.
func FuzzReader(f *testing.F) {
	var all []byte
	for _, m := range samples() {
		all = Append(all, m)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		for {
			_, n, err := r.Next()
			if err != nil {
				return
			}
			if r.Payload(make([]byte, min(n, 100))) != nil {
				return
			}
		}
	})
}
