package schemas_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-dev/sluice/schemas"
)

// FuzzDecodeCommand holds the decoder to its word: no panic; what it takes is valid, passes the JSON Schema, and is the same
// after another round; what it refuses gets an error that can travel.
func FuzzDecodeCommand(f *testing.F) {
	for name, body := range examples(f) {
		if schemaOf(name) == "command" {
			f.Add(body)
		}
	}
	for _, bad := range badCommands() {
		if len(bad.body) < 1000 {
			f.Add([]byte(bad.body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := schemas.DecodeCommand(body)
		if err != nil {
			e, ok := errors.AsType[*schemas.Error](err)
			if !ok || (e.Code != schemas.CodeInvalidArgument && e.Code != schemas.CodeTooLarge) || e.Message == "" {
				t.Fatalf("refused with %#v", err)
			}
			encoded, err := json.Marshal(e)
			if err != nil || len(encoded) > maxRefusal {
				t.Fatalf("the error is %d bytes: %v", len(encoded), err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("decoded, but not valid: %v", err)
		}
		if err := bySchema(t, "command", body); err != nil {
			t.Fatalf("decoded, but the JSON Schema refuses %s: %v", body, err)
		}
		again, err := schemas.EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := schemas.DecodeCommand(again)
		if err != nil {
			t.Fatalf("decoded, encoded and refused: %v", err)
		}
		// What is empty is left out, and means the same.
		if diff := cmp.Diff(c, back, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzDecodeEvent holds the tolerant reader to its word: no panic, a coded error, and the same event after another round.
func FuzzDecodeEvent(f *testing.F) {
	for name, body := range examples(f) {
		if schemaOf(name) == "event" {
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		ev, err := schemas.DecodeEvent(body)
		if err != nil {
			if !errors.Is(err, schemas.ErrInvalidArgument) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if data := dataOf(ev.Type); data != nil {
			if err := ev.Decode(data); err != nil && !errors.Is(err, schemas.ErrInvalidArgument) {
				t.Fatalf("data refused with %v", err)
			}
		}
		again, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		back, err := schemas.DecodeEvent(again)
		if err != nil {
			t.Fatalf("decoded, encoded and refused: %v", err)
		}
		twice, err := json.Marshal(back)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(twice) {
			t.Fatalf("%s became %s", again, twice)
		}
	})
}
