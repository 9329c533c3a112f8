package schemas_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/schemas"
)

// examples are the golden files by name; the schema's name is the part before the first dot.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("examples/*.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(path), ".json")] = body
	}
	return out
}

func schemaOf(example string) string {
	name, _, _ := strings.Cut(example, ".")
	return name
}

// decoded reads an example as Sluice reads it.
func decoded(schema string, body []byte) (any, error) {
	plain := func(into any) (any, error) { return into, json.Unmarshal(body, into) }
	switch schema {
	case "command":
		return schemas.DecodeCommand(body)
	case "event":
		return schemas.DecodeEvent(body)
	case "signal":
		return schemas.DecodeSignalRequest(body)
	case "kill":
		return schemas.DecodeKillRequest(body)
	case "stop":
		return schemas.DecodeStopRequest(body)
	case "start":
		return schemas.DecodeStartRequest(body)
	case "renew":
		return schemas.DecodeRenewRequest(body)
	case "template":
		t := new(schemas.Template)
		if err := json.Unmarshal(body, t); err != nil {
			return nil, err
		}
		return t, t.Validate()
	case "session-reply":
		return plain(new(schemas.SessionReply))
	case "message":
		return plain(new(schemas.Message))
	case "stream-finish":
		return plain(new(schemas.StreamFinish))
	case "hook-data":
		return plain(new(schemas.HookData))
	case "hook-run":
		return plain(new(schemas.HookRun))
	case "cold-start":
		return plain(new(schemas.ColdStart))
	case "sync-report":
		return plain(new(schemas.SyncReport))
	case "place-request":
		return schemas.DecodePlaceRequest(body)
	case "place-reply":
		return plain(new(schemas.PlaceReply))
	case "accepted":
		return plain(new(schemas.Accepted))
	case "started":
		return plain(new(schemas.Started))
	case "result":
		return plain(new(schemas.Result))
	case "session":
		return plain(new(schemas.Session))
	case "sandbox":
		return plain(new(schemas.SandboxInfo))
	case "log-gap":
		return plain(new(schemas.LogGap))
	case "error":
		return plain(new(schemas.Error))
	default:
		return nil, os.ErrNotExist
	}
}

func TestExamples(t *testing.T) {
	seen := map[string]bool{}
	for name, body := range examples(t) {
		seen[schemaOf(name)] = true
		t.Run(name, func(t *testing.T) {
			if err := bySchema(t, schemaOf(name), body); err != nil {
				t.Errorf("the JSON Schema refuses it: %v", err)
			}
			v, err := decoded(schemaOf(name), body)
			if err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(anyOf(t, body), anyOf(t, again)); diff != "" {
				t.Errorf("decoded and encoded again it differs (-file +encoded):\n%s", diff)
			}
			if err := bySchema(t, schemaOf(name), again); err != nil {
				t.Errorf("the JSON Schema refuses what Go encodes: %v", err)
			}
		})
	}
	all, err := compileSchemas()
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !seen[name] {
			t.Errorf("json/%s.json has no example", name)
		}
	}
}

func anyOf(t *testing.T, body []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// dataOf is the Go type of an event's data.
func dataOf(typ schemas.EventType) any {
	switch typ {
	case schemas.TypeProcessAccepted:
		return new(schemas.Accepted)
	case schemas.TypeProcessStarted:
		return new(schemas.Started)
	case schemas.TypeProcessExited, schemas.TypeProcessLost, schemas.TypeProcessRejected:
		return new(schemas.Result)
	case schemas.TypeSessionCreated, schemas.TypeSessionReused, schemas.TypeSessionExpired, schemas.TypeSessionEnded:
		return new(schemas.Session)
	case schemas.TypeSandboxPending, schemas.TypeSandboxCreating, schemas.TypeSandboxRunning, schemas.TypeSandboxCompleted,
		schemas.TypeSandboxFailed, schemas.TypeSandboxEnded:
		return new(schemas.SandboxInfo)
	case schemas.TypeHookStarted, schemas.TypeHookFinished, schemas.TypeHookFailed:
		return new(schemas.HookRun)
	case schemas.TypeColdStart:
		return new(schemas.ColdStart)
	case schemas.TypeMessageSaved:
		return new(schemas.Message)
	case schemas.TypeStreamFinished:
		return new(schemas.StreamFinish)
	case schemas.TypeSyncPulled, schemas.TypeSyncPushed, schemas.TypeSyncConflict:
		return new(schemas.SyncReport)
	case schemas.TypeLogGap:
		return new(schemas.LogGap)
	case schemas.TypeValidationFailed, schemas.TypeLimitExceeded:
		return new(schemas.Error)
	default:
		return nil
	}
}

func TestEveryEventTypeHasAnExample(t *testing.T) {
	files := examples(t)
	for _, typ := range schemas.EventTypes() {
		body, ok := files["event."+strings.ReplaceAll(string(typ), ".", "-")]
		if !ok {
			t.Errorf("%s has no example", typ)
			continue
		}
		ev, err := schemas.DecodeEvent(body)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type != typ {
			t.Errorf("the example of %s is a %s", typ, ev.Type)
		}
		data := dataOf(typ)
		if data == nil {
			t.Fatalf("the data of %s is not known here", typ)
		}
		if err := ev.Decode(data); err != nil {
			t.Error(err)
		}
		if reflect.ValueOf(data).Elem().IsZero() {
			t.Errorf("the data of %s is empty", typ)
		}
		// The schema must look into the data: these are fields of every type of it, each with a value that none may have.
		wrong, ok := anyOf(t, body).(map[string]any)
		if !ok {
			t.Fatalf("the example of %s is not an object", typ)
		}
		wrong["data"] = map[string]any{"code": 1, "id": 1, "stream": 1, "fingerprint": 1, "process": 1, "hook": 1, "sandbox": 1, "location": 1}
		if bySchema(t, "event", mustJSON(t, wrong)) == nil {
			t.Errorf("json/event.json does not look into the data of %s", typ)
		}
	}
}

// Unknown fields are tolerated in what a worker sends, at every depth, so that an old reader can follow a new worker.
func TestEventsTolerateUnknownFields(t *testing.T) {
	for name, body := range examples(t) {
		switch schemaOf(name) {
		case "command", "signal", "kill", "stop", "start", "renew", "place-request":
			continue
		}
		v, ok := anyOf(t, body).(map[string]any)
		if !ok {
			t.Fatalf("%s is not an object", name)
		}
		extended, err := json.Marshal(extend(v))
		if err != nil {
			t.Fatal(err)
		}
		if err := bySchema(t, schemaOf(name), extended); err != nil {
			t.Errorf("%s: the JSON Schema refuses a field from the future: %v", name, err)
		}
		if _, err := decoded(schemaOf(name), extended); err != nil {
			t.Errorf("%s: a field from the future is refused: %v", name, err)
		}
	}
}

// extend adds an unknown field to an object and to those in it. In a map, whatever is in it is no field.
func extend(v map[string]any) map[string]any {
	for name, member := range v {
		if inner, ok := member.(map[string]any); ok && !slices.Contains([]string{"details", "tags", "env", "secrets", "hooks"}, name) {
			v[name] = extend(inner)
		}
	}
	v["from_the_future"] = []any{1, "two", nil}
	return v
}

func TestExampleFingerprint(t *testing.T) {
	files := examples(t)
	c, err := schemas.DecodeCommand(files["command.full"])
	if err != nil {
		t.Fatal(err)
	}
	var a schemas.Accepted
	if err := json.Unmarshal(files["accepted.full"], &a); err != nil {
		t.Fatal(err)
	}
	if c.Fingerprint() != a.Fingerprint {
		t.Errorf("the fingerprint of command.full.json is %s, accepted.full.json says %s: records of older versions would not match",
			c.Fingerprint(), a.Fingerprint)
	}
}
