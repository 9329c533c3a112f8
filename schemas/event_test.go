package schemas_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestDecodeEventRefusesInvalid(t *testing.T) {
	for _, body := range []string{``, `{`, `[]`, `null`, `{}`, `{"specversion":"1.0"}`, `{"type":"process.exited"}`, `{"specversion":"1.0","type":"x","time":"now"}`} {
		t.Run(body, func(t *testing.T) {
			if bySchema(t, "event", []byte(body)) == nil {
				t.Error("the JSON Schema accepts it")
			}
			_, err := schemas.DecodeEvent([]byte(body))
			testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		})
	}
	ev := schemas.Event{Type: schemas.TypeProcessExited, Data: json.RawMessage(`{"exit_code":"0"}`)}
	testkit.WantCode(t, ev.Decode(new(schemas.Result)), schemas.CodeInvalidArgument)
}

func TestEventTypes(t *testing.T) {
	for _, typ := range schemas.EventTypes() {
		if got, want := typ.Terminal(), typ == "process.exited" || typ == "process.lost" || typ == "process.rejected"; got != want {
			t.Errorf("%s: Terminal() = %v, want %v", typ, got, want)
		}
		if got, want := typ.OfProcess(), strings.HasPrefix(string(typ), "process."); got != want {
			t.Errorf("%s: OfProcess() = %v, want %v", typ, got, want)
		}
		if got := strings.Count(string(typ), "."); got != 1 {
			t.Errorf("%s has %d dots, want 1: it is two subject tokens", typ, got)
		}
	}
}
