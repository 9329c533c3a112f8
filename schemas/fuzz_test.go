package schemas_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// FuzzDecodeCommand checks that the decoder does not panic, that what it accepts is valid for the JSON Schema too and survives
// encoding, and that its errors fit into an event.
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
				t.Fatalf("error = %#v, want invalid_argument or too_large with a message", err)
			}
			encoded, err := json.Marshal(e)
			if err != nil || len(encoded) > maxRefusal {
				t.Fatalf("the encoded error is %d bytes, want at most %d: %v", len(encoded), maxRefusal, err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("the decoded command is not valid: %v", err)
		}
		if err := bySchema(t, "command", body); err != nil {
			t.Fatalf("the JSON Schema refuses %s: %v", body, err)
		}
		encoded, err := schemas.EncodeCommand(c)
		testkit.Must(t, err)
		decoded, err := schemas.DecodeCommand(encoded)
		testkit.Must(t, err)
		// Empty fields are omitted.
		testkit.Equal(t, "command after encoding and decoding", decoded, c, cmpopts.EquateEmpty())
	})
}

// FuzzDecodeEvent checks that the decoder does not panic, that its errors have a code, and that events survive encoding.
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
				t.Fatalf("error = %v, want invalid_argument", err)
			}
			return
		}
		if data := dataOf(ev.Type); data != nil {
			if err := ev.Decode(data); err != nil && !errors.Is(err, schemas.ErrInvalidArgument) {
				t.Fatalf("error of the data = %v, want invalid_argument", err)
			}
		}
		once := mustJSON(t, ev)
		decoded, err := schemas.DecodeEvent(once)
		testkit.Must(t, err)
		testkit.Equal(t, "event after encoding and decoding", string(mustJSON(t, decoded)), string(once))
	})
}
