package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/observe"
	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/schemas"
)

// values returns all metrics of a registry by name{label values}. The value of a histogram is its number of observations.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	testkit.Must(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value(m)
		}
	}
	return out
}

func value(m *dto.Metric) float64 {
	switch {
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	default:
		return m.GetCounter().GetValue()
	}
}

// store accepts every record, or fails with err.
type store struct {
	processor.Records
	err error
}

func (s *store) Append(context.Context, *schemas.Event, uint64) (uint64, error) { return 1, s.err }
func (s *store) Publish(context.Context, *schemas.Event) error                  { return s.err }

func event(t *testing.T, typ schemas.EventType, data any) *schemas.Event {
	t.Helper()
	body, err := json.Marshal(data)
	testkit.Must(t, err)
	return &schemas.Event{Type: typ, Thread: "thread-7", Session: "s1", Time: time.Unix(1000, 0), Data: body}
}

func TestObserver(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	o, err := observe.New(zerolog.New(&log), registry)
	testkit.Must(t, err)
	inner := &store{}
	r := o.Records(inner)
	publish := func(typ schemas.EventType, data any) {
		t.Helper()
		testkit.Must(t, r.Publish(t.Context(), event(t, typ, data)))
	}
	s := schemas.Session{ID: "s1", Thread: "thread-7", Template: "docs", User: "ada", Created: time.Unix(900, 0)}
	publish(schemas.TypeSessionCreated, s)
	publish(schemas.TypeSessionReused, s)
	publish(schemas.TypeSessionCreated, schemas.Session{ID: "s2"})
	publish(schemas.TypeColdStartFinished, schemas.ColdStart{SandboxMS: 10, HooksMS: 5})
	publish(schemas.TypeValidationFailed, schemas.Errorf(schemas.CodeInvalidArgument, "exec.command: missing"))
	publish(schemas.TypeLimitExceeded, schemas.Errorf(schemas.CodeLimitExceeded, "full"))
	publish(schemas.TypeHookFailed, schemas.HookRun{Phase: schemas.PhaseMessage, DurationMS: 3})
	publish(schemas.TypeStreamFinished, schemas.StreamFinish{Usage: schemas.Usage{InputTokens: 4, OutputTokens: 6}})
	publish(schemas.TypeSyncPushed, schemas.SyncReport{Bytes: 100})
	publish(schemas.TypeFileDownloaded, schemas.FileTransfer{Bytes: 30})
	for _, result := range []schemas.Result{
		{Success: true, Reason: schemas.ReasonExited, DurationMS: 2}, {Reason: schemas.ReasonExited, ExitCode: 3, DurationMS: 2}, {Reason: schemas.ReasonTimedOut, DurationMS: 2},
	} {
		_, err := r.Append(t.Context(), event(t, schemas.TypeProcessExited, result), 0)
		testkit.Must(t, err)
	}
	inner.err = schemas.ErrConflict // another worker has the record: this event does not count
	_, err = r.Append(t.Context(), event(t, schemas.TypeProcessExited, schemas.Result{Success: true}), 0)
	testkit.WantCode(t, err, schemas.CodeConflict)
	p := o.Policy(policy.New())
	docs := &schemas.Template{Name: "docs", Policy: &schemas.TemplatePolicy{Name: "documents"}}
	testkit.Must(t, p.Check(docs, "ls", nil))
	testkit.WantCode(t, p.Check(docs, "rm", nil), schemas.CodePolicyDenied)
	testkit.Must(t, observe.Pool(registry, "docker", func() observe.PoolStats {
		return observe.PoolStats{Hits: 3, Misses: 1, Ready: 2, Wait: time.Second}
	}))
	got := values(t, registry)
	for name, want := range map[string]float64{
		"sluice_sessions_total{created,docs}": 1, "sluice_sessions_total{reused,docs}": 1, "sluice_sessions_total{created,default}": 1,
		"sluice_sessions_active{docs}": 1, "sluice_sessions_active{default}": 1,
		"sluice_commands_total{success,docs}": 1, "sluice_commands_total{failure,docs}": 1, "sluice_commands_total{timed_out,docs}": 1,
		"sluice_command_duration_seconds{success,docs}": 1, "sluice_cold_start_seconds{sandbox,docs}": 1, "sluice_cold_start_seconds{hooks,docs}": 1,
		"sluice_policy_violations_total{docs}": 1, "sluice_validation_failures_total{invalid_argument,docs}": 1, "sluice_limits_exceeded_total{limit_exceeded,docs}": 1,
		"sluice_hook_duration_seconds{failure,message,docs}": 1, "sluice_tokens_total{input,docs}": 4, "sluice_tokens_total{output,docs}": 6,
		"sluice_syncs_total{pushed,docs}": 1, "sluice_sync_bytes_total{pushed,docs}": 100, "sluice_file_bytes_total{downloaded,docs}": 30,
		"sluice_pool_requests_total{hit,docker}": 3, "sluice_pool_requests_total{miss,docker}": 1, "sluice_pool_ready{docker}": 2, "sluice_pool_wait_seconds_total{docker}": 1,
	} {
		// Constant labels break the order by name.
		name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		swapped := strings.Split(labels, ",")
		slices.Reverse(swapped)
		if v, w := got[name+"{"+labels+"}"], got[name+"{"+strings.Join(swapped, ",")+"}"]; v != want && w != want {
			t.Errorf("%s{%s} = %v, want %v", name, labels, max(v, w), want)
		}
	}
	for name := range got {
		if strings.Contains(name, "thread-7") || strings.Contains(name, "s1") {
			t.Errorf("%s has a label without a bound", name)
		}
	}

	inner.err = nil
	publish(schemas.TypeSessionExpired, s)
	got = values(t, registry)
	testkit.Equal(t, "active sessions after one expired", got["sluice_sessions_active{docs}"], 0.0)
	testkit.Equal(t, "session lifetimes", got["sluice_session_lifetime_seconds{docs}"], 1.0)
	o.Reset()
	testkit.Equal(t, "active sessions after Reset", values(t, registry)["sluice_sessions_active{default}"], 0.0)
	for _, want := range []string{
		`"user":"ada","thread":"thread-7","session_id":"s1","template":"docs","epoch":0,"message":"session_created"`, `"message":"session_reused"`,
		`"user":"ada","thread":"thread-7","session_id":"s1","command_id":"","code":"invalid_argument","reason":"exec.command: missing","message":"validation_failed"`,
		`"message":"resource_limit_exceeded"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log = %s\nwant a line with %s", log.String(), want)
		}
	}
}

// Unknown and malformed events must not panic.
func TestObserverIgnoresMalformedEvents(t *testing.T) {
	o, err := observe.New(zerolog.Nop(), prometheus.NewRegistry())
	testkit.Must(t, err)
	for _, typ := range append(schemas.EventTypes(), "new.type") {
		for _, data := range []string{"", "{", "[]", `"x"`, "{}", `{"id":1}`} {
			o.Event(&schemas.Event{Type: typ, Data: []byte(data)})
		}
	}
	_, err = observe.New(zerolog.Nop(), prometheus.NewRegistry()) // another registry accepts the same metrics
	testkit.Must(t, err)
}
