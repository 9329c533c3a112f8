package schemas

import (
	"maps"
	"regexp"
	"slices"
)

// Origin is what a caller gives a command to carry. Sluice repeats it unchanged in every event that follows from the command, and
// passes the trace context on to hooks and processes.
type Origin struct {
	// TraceParent and TraceState are the W3C trace context of the caller's span, as in the headers of the same names. Default: those
	// headers of the NATS message. Tracestate needs traceparent.
	TraceParent string `json:"traceparent,omitempty"`
	TraceState  string `json:"tracestate,omitempty"`
	// Labels are the caller's, such as a user or a step. They grant no rights. At most [MaxLabels], each a name of at most 64 of the
	// characters A-Z a-z 0-9 . _ - / and a text of at most 256 bytes.
	Labels map[string]string `json:"labels,omitempty"`
}

// The names of the trace context as W3C defines them: in headers and in events, and as variables of a process.
const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
	EnvTraceParent    = "TRACEPARENT"
	EnvTraceState     = "TRACESTATE"
)

// The forms of trace contexts and labels. A later version of W3C Trace Context may append fields to a trace parent.
const (
	TraceParentPattern = `^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{1,200})?$`
	TraceStatePattern  = `^[ -~\t]*$`
	LabelNamePattern   = `^[A-Za-z0-9._/-]{1,64}$`
)

var (
	traceParent = regexp.MustCompile(TraceParentPattern)
	// noTrace is version ff, a version 00 with more fields, and ids of zeros alone.
	noTrace    = regexp.MustCompile(`^(ff|00.{53}-|..-0{32}|..-.{32}-0{16})`)
	traceState = regexp.MustCompile(TraceStatePattern)
	labelName  = regexp.MustCompile(LabelNamePattern)
)

// WithTrace returns the origin with this trace context, where it has none. A context that is invalid is ignored, as W3C asks of who
// receives it in headers or from the environment.
func (o Origin) WithTrace(parent, state string) Origin {
	if parent == "" || o.TraceParent != "" || checkTraceParent(parent) != nil {
		return o
	}
	o.TraceParent = parent
	if checkTraceState(parent, state) == nil {
		o.TraceState = state
	}
	return o
}

// Environ adds the trace context to the environment of a process, which has its own where it sets TRACEPARENT.
func (o Origin) Environ(env map[string]string) map[string]string {
	if _, own := env[EnvTraceParent]; own || o.TraceParent == "" {
		return env
	}
	out := map[string]string{EnvTraceParent: o.TraceParent}
	if o.TraceState != "" {
		out[EnvTraceState] = o.TraceState
	}
	maps.Copy(out, env)
	return out
}

// Has reports whether it has all these labels, with these values.
func (o Origin) Has(labels map[string]string) bool {
	for name, value := range labels {
		if got, ok := o.Labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

func (o *Origin) validate() error {
	if o.TraceParent != "" {
		if err := checkTraceParent(o.TraceParent); err != nil {
			return err
		}
	}
	if o.TraceState != "" {
		if err := checkTraceState(o.TraceParent, o.TraceState); err != nil {
			return err
		}
	}
	if len(o.Labels) > MaxLabels {
		return invalid("labels", "%d labels, the limit is %d", len(o.Labels), MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		if !labelName.MatchString(name) {
			return invalid("labels", "%.80q is not the name of a label: use 1 to %d of the characters A-Z a-z 0-9 . _ - /", name, MaxLabelName)
		}
		if err := checkLabel("labels."+name, o.Labels[name], MaxLabelBytes); err != nil {
			return err
		}
	}
	return nil
}

func checkTraceParent(s string) error {
	if !traceParent.MatchString(s) || noTrace.MatchString(s) {
		return invalid("traceparent", "%.80q is not of the form 00-<32 hex>-<16 hex>-<2 hex> of W3C Trace Context", s)
	}
	return nil
}

func checkTraceState(parent, state string) error {
	switch {
	case parent == "":
		return invalid("tracestate", "traceparent is missing: it means nothing without")
	case len(state) > MaxTraceState:
		return invalid("tracestate", "%d bytes, the limit is %d", len(state), MaxTraceState)
	case !traceState.MatchString(state):
		return invalid("tracestate", "it has characters other than printable ASCII")
	}
	return nil
}
