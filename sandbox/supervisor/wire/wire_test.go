package wire

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// message is what every frame's type has.
type message interface {
	Append(b []byte) []byte
	Decode(b []byte) error
}

// samples are one of each, with an empty one to decode into.
func samples() map[Type][2]message {
	return map[Type][2]message{
		TypeHello: {&Hello{Version: 1, PID: 2, ReattachWindow: 3}, &Hello{}},
		TypeSpawn: {&Spawn{
			Handle: 1, ID: "id", Path: "p", Args: []string{"", "b\xff"}, Env: []string{"A=b"}, Dir: "/d", Stdin: true, Timeout: 4, Grace: 5,
		}, &Spawn{}},
		TypeAck:        {&Ack{Handle: 1, Stream: Stderr, Offset: 3}, &Ack{}},
		TypeStdin:      {&Stdin{Handle: 1, Data: []byte("x")}, &Stdin{}},
		TypeSignal:     {&Signal{Handle: 1, Seq: 2, Signal: 3}, &Signal{}},
		TypeKill:       {&Kill{Handle: 1, Grace: 2}, &Kill{}},
		TypeResume:     {&Resume{Handle: 1, Stdout: 2, Stderr: 3}, &Resume{}},
		TypeTerminate:  {&Terminate{Grace: 1}, &Terminate{}},
		TypeSpawned:    {&Spawned{Handle: 1, PID: 2, Started: -3}, &Spawned{}},
		TypeFailed:     {&Failed{Handle: 1, Cause: CauseBusy, Detail: "why"}, &Failed{}},
		TypeStdinTaken: {&StdinTaken{Handle: 1, Taken: 2, Closed: true}, &StdinTaken{}},
		TypeSignaled:   {&Signaled{Handle: 1, Seq: 2, Result: SignalDenied}, &Signaled{}},
		TypeExit: {&Exit{
			Handle: 1, Reason: ReasonOOM, Code: 2, Signal: 3, Stdout: 4, Stderr: 5, UserTime: 6, SystemTime: 7, MaxRSS: 8, Killed: 9,
			Started: 10, Ended: 11,
		}, &Exit{}},
		TypeListed: {&Listed{Processes: []Held{
			{Handle: 1, ID: "a", PID: 2, Ended: true, Stdout: 3, Stderr: 4, StdinTaken: 5, StdinQueued: 7, StdinClosed: true, Started: 6}, {},
		}}, &Listed{}},
	}
}

func TestRoundTrip(t *testing.T) {
	for want, pair := range samples() {
		frame := pair[0].Append([]byte("before"))[len("before"):]
		r := NewReader(bytes.NewReader(frame))
		got, n, err := r.Next()
		if err != nil || got != want || n != len(frame)-headSize {
			t.Fatalf("type %d: read as type %d of %d bytes, %v", want, got, n, err)
		}
		payload := make([]byte, n)
		if err := r.Payload(payload); err != nil {
			t.Fatal(err)
		}
		if err := pair[1].Decode(payload); err != nil {
			t.Fatalf("type %d: %v", want, err)
		}
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("type %d: %s", want, diff)
		}
		for n := range payload {
			if want != TypeStdin && pair[1].Decode(payload[:n]) == nil {
				t.Errorf("type %d: its first %d bytes pass for the whole", want, n)
			}
		}
		if want != TypeStdin && pair[1].Decode(append(bytes.Clone(payload), 0)) == nil {
			t.Errorf("type %d: a byte more passes", want)
		}
	}
}

func TestSpawnSizeIsEnough(t *testing.T) {
	m := &Spawn{ID: "i", Path: "p", Args: []string{strings.Repeat("a", 1000)}, Env: make([]string, 100), Dir: "/"}
	if n := len(m.Append(nil)); n > m.Size()+64 || n < m.Size()-64 {
		t.Errorf("%d bytes, said to be %d", n, m.Size())
	}
}

func TestOutput(t *testing.T) {
	frame := append(make([]byte, OutputFrame), "data"...)
	head := Output{Handle: 7, Stream: Stdout, Offset: 1 << 40}
	head.Put(frame, 4)
	r := NewReader(bytes.NewReader(append(frame, frame...)))
	for range 2 {
		typ, n, err := r.Next()
		if err != nil || typ != TypeOutput || n != OutputHead+4 {
			t.Fatal(typ, n, err)
		}
		b := make([]byte, OutputHead)
		var got Output
		if err := r.Payload(b); err != nil || got.Decode(b) != nil || got != head {
			t.Fatal(got, err)
		}
		// The data is left where it is: Next skips it.
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}

func TestReaderRefuses(t *testing.T) {
	for what, in := range map[string]string{
		"empty frame": "\x00\x00\x00\x00\x01", "9 MiB": "\x00\x00\x90\x00\x01", "4 GiB": "\xff\xff\xff\xff\x01",
	} {
		if _, _, err := NewReader(strings.NewReader(in)).Next(); err != ErrFrameSize {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := NewReader(strings.NewReader("\x03\x00\x00\x00\x01a"))
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if err := r.Payload(make([]byte, 3)); err != ErrPayload {
		t.Errorf("more than the frame has: %v", err)
	}
	if err := r.Payload(make([]byte, 2)); err != io.ErrUnexpectedEOF {
		t.Errorf("a frame cut off: %v", err)
	}
}

// FuzzDecode gives every decoder whatever bytes: it must not panic, and what it takes must encode to those bytes again.
func FuzzDecode(f *testing.F) {
	for typ, pair := range samples() {
		f.Add(byte(typ), pair[0].Append(nil)[headSize:])
	}
	f.Add(byte(TypeSpawn), bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, typ byte, payload []byte) {
		pair, ok := samples()[Type(typ)]
		if !ok {
			return
		}
		m := pair[1]
		if m.Decode(payload) != nil {
			return
		}
		if again := m.Append(nil)[headSize:]; !bytes.Equal(again, payload) {
			t.Errorf("type %d: %x is read, and written as %x", typ, payload, again)
		}
	})
}

// FuzzReader gives the reader whatever stream: it must end, without more memory than the stream is long.
func FuzzReader(f *testing.F) {
	var all []byte
	for _, pair := range samples() {
		all = pair[0].Append(all)
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
