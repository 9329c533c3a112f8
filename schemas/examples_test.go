package schemas_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// examples returns the golden files by name. The name before the first dot is that of the JSON Schema.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("examples/*.json")
	testkit.Must(t, err)
	out := map[string][]byte{}
	for _, path := range paths {
		body, err := os.ReadFile(path)
		testkit.Must(t, err)
		out[strings.TrimSuffix(filepath.Base(path), ".json")] = body
	}
	return out
}

func schemaOf(example string) string {
	name, _, _ := strings.Cut(example, ".")
	return name
}

// decodeExample decodes an example with the decoder that Sluice uses for its type.
func decodeExample(schema string, body []byte) (any, error) {
	strict := map[string]func([]byte) (any, error){
		"command":       decoder(schemas.DecodeCommand),
		"event":         decoder(schemas.DecodeEvent),
		"signal":        decoder(schemas.DecodeSignalRequest),
		"kill":          decoder(schemas.DecodeKillRequest),
		"resize":        decoder(schemas.DecodeTerminalSize),
		"cancel":        decoder(schemas.DecodeCancelRequest),
		"stop":          decoder(schemas.DecodeStopRequest),
		"start":         decoder(schemas.DecodeStartRequest),
		"renew":         decoder(schemas.DecodeRenewRequest),
		"sync":          decoder(schemas.DecodeSyncRequest),
		"place-request": decoder(schemas.DecodePlaceRequest), "workspace-removal": decoder(schemas.DecodeWorkspaceRemoval),
		"processes-request": decoder(schemas.DecodeProcessesRequest), "clean-request": decoder(schemas.DecodeCleanRequest),
		"service-request": decoder(schemas.DecodeServiceRequest),
		"connect-request": decoder(schemas.DecodeConnectRequest),
		"file-request":    decoder(schemas.DecodeFileRequest),
	}
	if decode, ok := strict[schema]; ok {
		return decode(body)
	}
	into, ok := map[string]any{
		"template": new(schemas.Template), "session-reply": new(schemas.SessionReply), "message": new(schemas.Message),
		"stream-finish": new(schemas.StreamFinish), "hook-data": new(schemas.HookData), "hook-run": new(schemas.HookRun),
		"cold-start": new(schemas.ColdStart), "sync-report": new(schemas.SyncReport), "place-reply": new(schemas.PlaceReply), "processes-reply": new(schemas.ProcessesReply), "clean-reply": new(schemas.CleanReply), "processes-cleaned": new(schemas.ProcessesCleaned),
		"file-reply": new(schemas.FileReply), "file-transfer": new(schemas.FileTransfer),
		"accepted": new(schemas.Accepted), "started": new(schemas.Started), "result": new(schemas.Result), "session": new(schemas.Session),
		"service": new(schemas.Service), "service-reply": new(schemas.ServiceReply), "connect-reply": new(schemas.ConnectReply),
		"sandbox": new(schemas.SandboxInfo), "log-gap": new(schemas.LogGap), "error": new(schemas.Error),
	}[schema]
	if !ok {
		return nil, fmt.Errorf("no Go type for schema %s", schema)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return nil, err
	}
	if t, ok := into.(*schemas.Template); ok {
		return t, t.Validate()
	}
	return into, nil
}

func decoder[T any](decode func([]byte) (*T, error)) func([]byte) (any, error) {
	return func(body []byte) (any, error) { return decode(body) }
}

func TestExamples(t *testing.T) {
	seen := map[string]bool{}
	for name, body := range examples(t) {
		seen[schemaOf(name)] = true
		t.Run(name, func(t *testing.T) {
			if err := bySchema(t, schemaOf(name), body); err != nil {
				t.Errorf("the JSON Schema refuses it: %v", err)
			}
			v, err := decodeExample(schemaOf(name), body)
			testkit.Must(t, err)
			encoded := mustJSON(t, v)
			testkit.Equal(t, "example after decoding and encoding", anyOf(t, encoded), anyOf(t, body))
			if err := bySchema(t, schemaOf(name), encoded); err != nil {
				t.Errorf("the JSON Schema refuses what Go encodes: %v", err)
			}
		})
	}
	all, err := compileSchemas()
	testkit.Must(t, err)
	for name := range all {
		if !seen[name] {
			t.Errorf("json/%s.json has no example", name)
		}
	}
}

func anyOf(t *testing.T, body []byte) any {
	t.Helper()
	var v any
	testkit.Must(t, json.Unmarshal(body, &v))
	return v
}

// dataOf returns a new value of the Go type of an event's data; nil for an unknown event type.
func dataOf(typ schemas.EventType) any {
	switch typ {
	case schemas.TypeProcessAccepted:
		return new(schemas.Accepted)
	case schemas.TypeProcessStarted:
		return new(schemas.Started)
	case schemas.TypeProcessExited, schemas.TypeProcessLost, schemas.TypeProcessRejected:
		return new(schemas.Result)
	case schemas.TypeSessionCreated, schemas.TypeSessionReused, schemas.TypeSessionExpired, schemas.TypeSessionTerminated:
		return new(schemas.Session)
	case schemas.TypeSandboxPending, schemas.TypeSandboxCreating, schemas.TypeSandboxRunning, schemas.TypeSandboxCompleted,
		schemas.TypeSandboxFailed, schemas.TypeSandboxTerminated, schemas.TypeSandboxEnding:
		return new(schemas.SandboxInfo)
	case schemas.TypeHookStarted, schemas.TypeHookFinished, schemas.TypeHookFailed:
		return new(schemas.HookRun)
	case schemas.TypeColdStartFinished:
		return new(schemas.ColdStart)
	case schemas.TypeMessageSaved:
		return new(schemas.Message)
	case schemas.TypeStreamFinished:
		return new(schemas.StreamFinish)
	case schemas.TypeSyncPulled, schemas.TypeSyncPushed, schemas.TypeSyncConflict:
		return new(schemas.SyncReport)
	case schemas.TypeServiceStarting, schemas.TypeServiceRunning, schemas.TypeServiceUnhealthy, schemas.TypeServiceStopping, schemas.TypeServiceStopped,
		schemas.TypeServiceFailed:
		return new(schemas.Service)
	case schemas.TypeFileUploaded, schemas.TypeFileDownloaded:
		return new(schemas.FileTransfer)
	case schemas.TypeLogGap:
		return new(schemas.LogGap)
	case schemas.TypeProcessesCleaned:
		return new(schemas.ProcessesCleaned)
	case schemas.TypeValidationFailed, schemas.TypeLimitExceeded, schemas.TypeCommandWaiting:
		return new(schemas.Error)
	default:
		return nil
	}
}

func TestEventExamples(t *testing.T) {
	files := examples(t)
	for _, typ := range schemas.EventTypes() {
		t.Run(string(typ), func(t *testing.T) {
			body, ok := files["event."+strings.ReplaceAll(string(typ), ".", "-")]
			if !ok {
				t.Fatal("the event type has no example")
			}
			ev, err := schemas.DecodeEvent(body)
			testkit.Must(t, err)
			testkit.Equal(t, "type", ev.Type, typ)
			data := dataOf(typ)
			if data == nil {
				t.Fatal("dataOf does not know the event type")
			}
			testkit.Must(t, ev.Decode(data))
			if reflect.ValueOf(data).Elem().IsZero() {
				t.Error("the data is empty")
			}
			// Each type of data has one of these fields, and no type allows the value.
			wrong := map[string]any{"code": 1, "id": 1, "stream": 1, "fingerprint": 1, "process": 1, "hook": 1, "sandbox": 1, "location": 1, "through": "1"}
			ev.Data = mustJSON(t, wrong)
			if bySchema(t, "event", mustJSON(t, ev)) == nil {
				t.Error("json/event.json does not check the data")
			}
		})
	}
}

// Readers accept unknown fields from a worker at every depth, so that an old reader can follow a new worker.
func TestUnknownFieldsFromWorkersAreAccepted(t *testing.T) {
	for name, body := range examples(t) {
		switch schemaOf(name) {
		case "command", "signal", "kill", "resize", "cancel", "stop", "start", "renew", "sync", "place-request", "workspace-removal", "processes-request", "clean-request", "service-request", "connect-request", "file-request":
			continue
		}
		v, ok := anyOf(t, body).(map[string]any)
		if !ok {
			t.Fatalf("%s is not an object", name)
		}
		extended := mustJSON(t, extend(v))
		if err := bySchema(t, schemaOf(name), extended); err != nil {
			t.Errorf("%s: the JSON Schema refuses an unknown field: %v", name, err)
		}
		if _, err := decodeExample(schemaOf(name), extended); err != nil {
			t.Errorf("%s: the decoder refuses an unknown field: %v", name, err)
		}
	}
}

// extend adds an unknown field to an object and to the objects in it, except to maps, which have no fields.
func extend(v map[string]any) map[string]any {
	for name, member := range v {
		if inner, ok := member.(map[string]any); ok && !slices.Contains([]string{"details", "tags", "labels", "env", "secrets", "hooks"}, name) {
			v[name] = extend(inner)
		}
	}
	v["from_the_future"] = []any{1, "two", nil}
	return v
}

// Records of older versions must keep their fingerprints.
func TestFingerprintOfExample(t *testing.T) {
	files := examples(t)
	c, err := schemas.DecodeCommand(files["command.full"])
	testkit.Must(t, err)
	var a schemas.Accepted
	testkit.Must(t, json.Unmarshal(files["accepted.full"], &a))
	testkit.Equal(t, "fingerprint of command.full.json", c.Fingerprint(), a.Fingerprint)
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	testkit.Must(t, err)
	return body
}
