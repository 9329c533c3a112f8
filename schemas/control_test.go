package schemas_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestDecodeControlRefusesInvalid(t *testing.T) {
	tests := []struct {
		schema, body, path string
	}{
		{"signal", `{}`, "signal"},
		{"signal", `{"signal":""}`, "signal"},
		{"signal", `{"signal":"SIG INT"}`, "signal"},
		{"signal", `{"signal":9}`, "signal"},
		{"signal", `{"signal":"KILL","pid":1}`, "pid"},
		{"signal", `{"Signal":"KILL"}`, "Signal"},
		{"signal", `{"signal":"` + strings.Repeat("K", 40_000) + `"}`, "signal"},
		{"kill", `{"grace_ms":-1}`, "grace_ms"},
		{"kill", `{"grace_ms":2592000001}`, "grace_ms"},
		{"kill", `{"grace":10}`, "grace"},
		{"kill", ``, ""},
		{"kill", `null`, ""},
		{"workspace-removal", `{}`, "thread"},
		{"workspace-removal", `{"thread":"a.b"}`, "thread"},
		{"workspace-removal", `{"thread":"t","unpushd":true}`, "unpushd"},
		{"processes-request", `{"thread":"a.b"}`, "thread"},
		{"processes-request", `{"after":"*"}`, "after"},
		{"clean-request", `{}`, "thread"},
		{"clean-request", `{"thread":"a.b"}`, "thread"},
		{"cancel", `{}`, "process"},
		{"cancel", `{"process":"a.b"}`, "process"},
		{"cancel", `{"process":"p","fingerprint":"F"}`, "fingerprint"},
		{"cancel", `{"process":"p","key":"k"}`, "key"},
		{"place-request", `{}`, "thread"},
		{"place-request", `{"thread":"a.b"}`, "thread"},
		{"place-request", `{"thread":"t","provider":"a b"}`, "provider"},
		{"place-request", `{"thread":"t","worker":"w"}`, "worker"},
		{"place-request", `{"thread":"t","template":"../x"}`, "template"},
		{"place-request", `{"thread":"t","user":"` + strings.Repeat("u", schemas.MaxUserBytes+1) + `"}`, "user"},
		{"place-request", `{"thread":"t","tags":[]}`, "tags"},
		{"place-request", `{"thread":"t","tags":{"":"v"}}`, "tags"},
		{"place-request", `{"thread":"t","tags":{"a":1}}`, "tags.a"},
		{"place-request", `{"thread":"t","tags":{"a":"` + strings.Repeat("v", schemas.MaxTagBytes+1) + `"}}`, "tags.a"},
		{"place-request", `{"thread":"t","tags":{"` + strings.Repeat("n", schemas.MaxTagBytes+1) + `":"v"}}`, "tags"},
		{"place-request", `{"thread":"t","tags":` + manyTags(schemas.MaxTags+1) + `}`, "tags"},
		{"place-request", `{"thread":"t","idle_timeout_ms":-1}`, "idle_timeout_ms"},
		{"place-request", `{"thread":"t","max_lifetime_ms":2592000001}`, "max_lifetime_ms"},
		{"place-request", `{"thread":"t","max_lifetime_ms":-1}`, "max_lifetime_ms"},
		{"place-request", `{"thread":"t","image":"a b"}`, "image"},
		{"place-request", `{"thread":"t","start":1}`, "start"},
		{"stop", `{"session":"a.b"}`, "session"},
		{"stop", `{"grace_ms":-1}`, "grace_ms"},
		{"stop", `{"grace_ms":null}`, "grace_ms"},
		{"stop", `{"force":true}`, "force"},
		{"stop", `{"session":"a b"}`, "session"},
		{"stop", `{"delete":null}`, "delete"},
		{"stop", `[]`, ""},
		{"start", `{"session":"*"}`, "session"},
		{"start", `{"template":"t"}`, "template"},
		{"start", `[]`, ""},
		{"renew", `{"session":"a b"}`, "session"},
		{"renew", `{"idle_timeout_ms":-1}`, "idle_timeout_ms"},
		{"renew", `{"idle_timeout_ms":2592000001}`, "idle_timeout_ms"},
		{"renew", `{"expires":"never"}`, "expires"},
		{"sync", `{}`, "op"},
		{"sync", `{"op":"pull"}`, "op"},
		{"sync", `{"op":"push","session":"a b"}`, "session"},
		{"sync", `{"op":"push","force":true}`, "force"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %.60s", tt.schema, tt.body), func(t *testing.T) {
			_, err := decodeExample(tt.schema, []byte(tt.body))
			checkRefusal(t, err, tt.path)
			if bySchema(t, tt.schema, []byte(tt.body)) == nil {
				t.Error("the JSON Schema accepts it")
			}
		})
	}
	_, err := schemas.DecodeSignalRequest([]byte(`{"signal":"` + strings.Repeat("K", schemas.MaxControlBytes) + `"}`))
	testkit.WantCode(t, err, schemas.CodeTooLarge)
}

func TestDecodeControlAcceptsEveryField(t *testing.T) {
	for _, tt := range []struct{ schema, body string }{
		{"stop", `{}`},
		{"stop", `{"session":"a","grace_ms":0,"snapshot":true,"delete":true}`},
		{"renew", `{"idle_timeout_ms":1}`},
		{"start", `{"session":"a"}`},
		{"sync", `{"op":"push","session":"a"}`},
		{"sync", `{"op":"restore","at":"2026-01-02T15:04:05Z","path":"a/b"}`},
		{"place-request", `{"thread":"t","user":"u","tags":{"a":"b"},"idle_timeout_ms":1,"max_lifetime_ms":1,"existing":true,"start":true,"template":"x"}`},
	} {
		if _, err := decodeExample(tt.schema, []byte(tt.body)); err != nil {
			t.Errorf("%s %s: %v", tt.schema, tt.body, err)
		}
	}
}

func manyTags(n int) string {
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprintf(`"t%d":"v"`, i)
	}
	return "{" + strings.Join(tags, ",") + "}"
}
