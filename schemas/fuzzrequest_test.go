package schemas_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// fuzzRequest checks that a decoder does not panic, that what it accepts is valid for the JSON Schema too and survives encoding, and that
// its errors fit into a reply.
func fuzzRequest[T any](f *testing.F, name string, decode func([]byte) (*T, error), bad ...string) {
	f.Helper()
	for example, body := range examples(f) {
		if schemaOf(example) == name {
			f.Add(body)
		}
	}
	for _, body := range bad {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decode(body)
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
		if err := bySchema(t, name, body); err != nil {
			t.Fatalf("the JSON Schema refuses %s: %v", body, err)
		}
		encoded, err := json.Marshal(got)
		testkit.Must(t, err)
		again, err := decode(encoded)
		testkit.Must(t, err)
		testkit.Equal(t, "request after encoding and decoding", again, got, cmpopts.EquateEmpty())
	})
}

func FuzzDecodeFileRequest(f *testing.F) {
	fuzzRequest(f, "file-request", schemas.DecodeFileRequest,
		`{"op":"read","path":"../x"}`, `{"op":"read","path":"a\u0000"}`, `{"op":"write","mode":"9"}`, `{"op":"list","limit":-1}`, `{"op":"move","path":"a"}`)
}

func FuzzDecodeServiceRequest(f *testing.F) {
	fuzzRequest(f, "service-request", schemas.DecodeServiceRequest,
		`{"name":"a","stop":true,"start":{"command":"x"}}`, `{"name":"a","start":{"command":"x","health":{"port":70000}}}`)
}
