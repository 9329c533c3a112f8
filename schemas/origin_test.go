package schemas_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	parent  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	another = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-00"
)

// Ten minutes 12: labels and trace contexts are bounded and checked, by the decoder and by the JSON Schema.
func TestOriginIsChecked(t *testing.T) {
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"l%d":"v"`, i))
		}
		return `"labels":{` + strings.Join(all, ",") + `}`
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct {
		name, fields, path string
		goOnly             bool // the JSON Schema cannot express it
	}{
		{name: "none"},
		{name: "labels", fields: `"labels":{"user":"ann","app/step-1.a_b":"","x":"é"}`},
		{name: "16 labels", fields: many(schemas.MaxLabels)},
		{name: "longest label", fields: `"labels":{"` + long(64) + `":"` + long(256) + `"}`},
		{name: "trace", fields: `"traceparent":"` + parent + `","tracestate":"a=1, b=2"`},
		{name: "later version", fields: `"traceparent":"cc` + parent[2:] + `-what-the-future-will-be-like"`},

		{name: "17 labels", fields: many(schemas.MaxLabels + 1), path: "labels"},
		{name: "long name", fields: `"labels":{"` + long(65) + `":""}`, path: "labels"},
		{name: "empty name", fields: `"labels":{"":""}`, path: "labels"},
		{name: "space in a name", fields: `"labels":{"a b":""}`, path: "labels"},
		{name: "long value", fields: `"labels":{"a":"` + long(257) + `"}`, path: "labels.a"},
		{name: "NUL in a value", fields: `"labels":{"a":"\u0000"}`, path: "labels.a"},
		{name: "number", fields: `"labels":{"a":1}`, path: "labels.a"},
		{name: "label twice", fields: `"labels":{"a":"1","a":"2"}`, path: "labels.a", goOnly: true},
		{name: "no trace parent", fields: `"traceparent":"x"`, path: "traceparent"},
		{name: "capitals", fields: `"traceparent":"` + strings.ToUpper(parent) + `"`, path: "traceparent"},
		{name: "line break", fields: `"traceparent":"` + parent + `\n"`, path: "traceparent"},
		{name: "version ff", fields: `"traceparent":"ff` + parent[2:] + `"`, path: "traceparent", goOnly: true},
		{name: "more in version 00", fields: `"traceparent":"` + parent + `-01"`, path: "traceparent", goOnly: true},
		{name: "trace of zeros", fields: `"traceparent":"00-` + strings.Repeat("0", 32) + parent[35:] + `"`, path: "traceparent", goOnly: true},
		{name: "span of zeros", fields: `"traceparent":"` + parent[:36] + strings.Repeat("0", 16) + `-01"`, path: "traceparent", goOnly: true},
		{name: "state alone", fields: `"tracestate":"a=1"`, path: "tracestate", goOnly: true},
		{name: "long state", fields: `"traceparent":"` + parent + `","tracestate":"` + long(513) + `"`, path: "tracestate"},
		{name: "line break in the state", fields: `"traceparent":"` + parent + `","tracestate":"a=1\r\nX: y"`, path: "tracestate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fields := tt.fields
			if fields != "" {
				fields = "," + fields
			}
			command := `{"specversion":"1","op":"exec","thread":"t","key":"k","exec":{"command":"true"}` + fields + `}`
			place := `{"thread":"t"` + fields + `}`
			_, commandErr := schemas.DecodeCommand([]byte(command))
			_, placeErr := schemas.DecodePlaceRequest([]byte(place))
			for schema, err := range map[string]error{"command": commandErr, "place-request": placeErr} {
				got := ""
				if err != nil {
					testkit.WantCode(t, err, schemas.CodeInvalidArgument)
					got = schemas.AsError(err).Details["path"]
				}
				testkit.Equal(t, "path at fault in a "+schema, got, tt.path)
			}
			for schema, body := range map[string]string{"command": command, "place-request": place} {
				if refused := bySchema(t, schema, []byte(body)) != nil; refused != (tt.path != "" && !tt.goOnly) {
					t.Errorf("json/%s.json refuses it: %v", schema, refused)
				}
			}
		})
	}
}

// Ten minutes 12: a command that is sent again from another span is the same command; one with other labels is not.
func TestFingerprintLeavesTheTraceOut(t *testing.T) {
	c := schemas.Command{SpecVersion: "1", Op: schemas.OpExec, Thread: "t", Key: "k", Exec: &schemas.Exec{Command: "true"}}
	plain := c.Fingerprint()
	c.Origin = schemas.Origin{TraceParent: parent, TraceState: "a=1"}
	testkit.Equal(t, "fingerprint with a trace", c.Fingerprint(), plain)
	testkit.Equal(t, "trace after the fingerprint", c.TraceParent, parent)
	c.Labels = map[string]string{"a": "1"}
	if c.Fingerprint() == plain {
		t.Error("labels do not change the fingerprint")
	}
}

func TestTraceOfHeaders(t *testing.T) {
	own := schemas.Origin{TraceParent: parent}
	for _, tt := range []struct {
		name          string
		of            schemas.Origin
		parent, state string
		want          schemas.Origin
	}{
		{"none", schemas.Origin{}, "", "", schemas.Origin{}},
		{"both", schemas.Origin{}, another, "a=1", schemas.Origin{TraceParent: another, TraceState: "a=1"}},
		{"own", own, another, "a=1", own},
		{"invalid", schemas.Origin{}, "x", "a=1", schemas.Origin{}},
		{"invalid state", schemas.Origin{}, another, "a\n", schemas.Origin{TraceParent: another}},
	} {
		testkit.Equal(t, tt.name, tt.of.WithTrace(tt.parent, tt.state), tt.want)
	}
}

func TestTraceInTheEnvironment(t *testing.T) {
	traced := schemas.Origin{TraceParent: parent, TraceState: "a=1"}
	given := map[string]string{"A": "1"}
	testkit.Equal(t, "environment", traced.Environ(given), map[string]string{"A": "1", "TRACEPARENT": parent, "TRACESTATE": "a=1"})
	testkit.Equal(t, "the given map", given, map[string]string{"A": "1"})
	testkit.Equal(t, "without a trace", schemas.Origin{}.Environ(given), given)
	given["TRACEPARENT"] = another
	testkit.Equal(t, "with one of the command", traced.Environ(given), given)
}
