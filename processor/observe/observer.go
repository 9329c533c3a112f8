package observe

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// Observer logs and counts a worker's events. Its methods are safe for concurrent use.
type Observer struct {
	log     zerolog.Logger
	metrics *metrics

	mu       sync.Mutex
	sessions map[string]session // by id; those that this worker owns
}

// session holds the facts of a session that its later events do not repeat.
type session struct {
	template string
	user     string
	created  time.Time
}

// New returns an Observer that writes to log and registers its metrics. Errors: those of the registry, for a second registration.
func New(log zerolog.Logger, registry prometheus.Registerer) (*Observer, error) {
	o := &Observer{log: log, metrics: newMetrics(), sessions: map[string]session{}}
	if err := o.metrics.register(registry); err != nil {
		return nil, err
	}
	if err := registry.Register(active{o}); err != nil {
		return nil, err
	}
	return o, nil
}

// Reset drops all sessions. Call it when the worker has lost them.
func (o *Observer) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.sessions)
}

// Records returns a decorator of inner that observes the events written to it.
func (o *Observer) Records(inner processor.Records) processor.Records { return records{inner, o} }

type records struct {
	processor.Records
	observer *Observer
}

func (r records) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	seq, err := r.Records.Append(ctx, ev, after)
	if err == nil {
		r.observer.Event(ev)
	}
	return seq, err
}

func (r records) Publish(ctx context.Context, ev *schemas.Event) error {
	r.observer.Event(ev) // the fact is true even if the event cannot be stored
	return r.Records.Publish(ctx, ev)
}

// Policy returns a decorator of inner that counts its refusals.
func (o *Observer) Policy(inner processor.Policy) processor.Policy { return policy{inner, o} }

type policy struct {
	inner    processor.Policy
	observer *Observer
}

func (p policy) Check(t *schemas.Template, command string, args []string) error {
	err := p.inner.Check(t, command, args)
	if err != nil {
		p.observer.metrics.violations.WithLabelValues(label(t.Name)).Inc()
	}
	return err
}

// Event logs and counts a published event.
func (o *Observer) Event(ev *schemas.Event) {
	switch ev.Type {
	case schemas.TypeSessionCreated, schemas.TypeSessionReused, schemas.TypeSessionExpired, schemas.TypeSessionTerminated:
		o.session(ev)
	case schemas.TypeProcessExited, schemas.TypeProcessLost, schemas.TypeProcessRejected:
		o.process(ev)
	case schemas.TypeColdStartFinished:
		o.coldStart(ev)
	case schemas.TypeSandboxFailed:
		o.metrics.sandboxes.WithLabelValues(o.template(ev), "failed").Inc()
	case schemas.TypeSandboxRunning:
		o.metrics.sandboxes.WithLabelValues(o.template(ev), "running").Inc()
	case schemas.TypeHookFinished, schemas.TypeHookFailed:
		o.hook(ev)
	case schemas.TypeStreamFinished:
		o.message(ev)
	case schemas.TypeSyncPulled, schemas.TypeSyncPushed, schemas.TypeSyncConflict:
		o.sync(ev)
	case schemas.TypeFileUploaded, schemas.TypeFileDownloaded:
		o.file(ev)
	case schemas.TypeValidationFailed:
		o.failure(ev, "validation_failed", o.metrics.validation)
	case schemas.TypeLimitExceeded:
		o.failure(ev, "resource_limit_exceeded", o.metrics.limits)
	}
}

// Dropped counts an event that was not stored.
func (o *Observer) Dropped(ev *schemas.Event) {
	o.metrics.dropped.WithLabelValues(string(ev.Type)).Inc()
}

func (o *Observer) session(ev *schemas.Event) {
	var s schemas.Session
	if ev.Decode(&s) != nil {
		return
	}
	template := label(s.Template)
	started := func(outcome string) {
		o.log.Info().Str("user", s.User).Str("thread", ev.Thread).Str("session_id", s.ID).Str("template", template).Uint64("epoch", s.Epoch).Msg("session_" + outcome)
		o.metrics.sessions.WithLabelValues(template, outcome).Inc()
		o.addSession(&s)
	}
	switch ev.Type {
	case schemas.TypeSessionCreated:
		started("created")
	case schemas.TypeSessionReused:
		started("reused")
	case schemas.TypeSessionExpired:
		o.endSession(&s, "expired", ev.Time)
	default:
		o.endSession(&s, "terminated", ev.Time)
	}
}

func (o *Observer) addSession(s *schemas.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions[s.ID] = session{template: label(s.Template), user: s.User, created: s.Created}
}

// endSession counts a session's end. The worker itself logs it.
func (o *Observer) endSession(s *schemas.Session, outcome string, at time.Time) {
	o.mu.Lock()
	delete(o.sessions, s.ID)
	o.mu.Unlock()
	template := label(s.Template)
	o.metrics.sessions.WithLabelValues(template, outcome).Inc()
	o.metrics.lifetime.WithLabelValues(template).Observe(max(0, at.Sub(s.Created).Seconds()))
}

// sessionOf returns the session of an event.
func (o *Observer) sessionOf(ev *schemas.Event) session {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok := o.sessions[ev.Session]
	if !ok {
		s.template = unknown
	}
	return s
}

func (o *Observer) template(ev *schemas.Event) string { return o.sessionOf(ev).template }

func (o *Observer) process(ev *schemas.Event) {
	var r schemas.Result
	if ev.Decode(&r) != nil {
		return
	}
	outcome := string(r.Reason)
	switch {
	case r.Success:
		outcome = "success"
	case r.Reason == schemas.ReasonExited:
		outcome = "failure"
	}
	template := o.template(ev)
	o.metrics.commands.WithLabelValues(template, outcome).Inc()
	if r.DurationMS > 0 {
		o.metrics.duration.WithLabelValues(template, outcome).Observe(seconds(r.DurationMS))
	}
}

func (o *Observer) coldStart(ev *schemas.Event) {
	var c schemas.ColdStart
	if ev.Decode(&c) == nil {
		o.metrics.starts.WithLabelValues(o.template(ev), "sandbox").Observe(seconds(c.SandboxMS))
		o.metrics.starts.WithLabelValues(o.template(ev), "hooks").Observe(seconds(c.HooksMS))
	}
}

func (o *Observer) hook(ev *schemas.Event) {
	var h schemas.HookRun
	if ev.Decode(&h) != nil {
		return
	}
	outcome := "success"
	if ev.Type == schemas.TypeHookFailed {
		outcome = "failure"
	}
	o.metrics.hooks.WithLabelValues(o.template(ev), string(h.Phase), outcome).Observe(seconds(h.DurationMS))
}

func (o *Observer) message(ev *schemas.Event) {
	var f schemas.StreamFinish
	if ev.Decode(&f) == nil {
		o.metrics.tokens.WithLabelValues(o.template(ev), "input").Add(float64(max(0, f.Usage.InputTokens)))
		o.metrics.tokens.WithLabelValues(o.template(ev), "output").Add(float64(max(0, f.Usage.OutputTokens)))
	}
}

func (o *Observer) sync(ev *schemas.Event) {
	var r schemas.SyncReport
	if ev.Decode(&r) != nil {
		return
	}
	outcome := map[schemas.EventType]string{schemas.TypeSyncPulled: "pulled", schemas.TypeSyncPushed: "pushed", schemas.TypeSyncConflict: "conflict"}[ev.Type]
	s := o.sessionOf(ev)
	o.metrics.syncs.WithLabelValues(s.template, outcome).Inc()
	o.metrics.syncBytes.WithLabelValues(s.template, outcome).Add(float64(max(0, r.Bytes)))
	if name := transfer(ev.Type); name != "" && r.Files > 0 {
		o.log.Info().Str("user", s.user).Str("thread", ev.Thread).Str("session_id", ev.Session).Str("version", r.Version).Int64("files", r.Files).
			Int64("bytes", r.Bytes).Float64("duration_ms", r.DurationMS).Msg(name)
	}
}

// file logs and counts content that a client put in or took out.
func (o *Observer) file(ev *schemas.Event) {
	var f schemas.FileTransfer
	if ev.Decode(&f) != nil {
		return
	}
	outcome := map[schemas.EventType]string{schemas.TypeFileUploaded: "uploaded", schemas.TypeFileDownloaded: "downloaded"}[ev.Type]
	s := o.sessionOf(ev)
	o.metrics.fileBytes.WithLabelValues(s.template, outcome).Add(float64(max(0, f.Bytes)))
	o.log.Info().Str("user", s.user).Str("thread", ev.Thread).Str("session_id", ev.Session).Str("op", string(f.Op)).Str("path", f.Path).Int64("files", f.Files).
		Int64("bytes", f.Bytes).Float64("duration_ms", f.DurationMS).Msg("file_" + outcome)
}

// transfer is the name of the log line of a push or pull; empty for a conflict, which transfers nothing.
func transfer(t schemas.EventType) string {
	switch t {
	case schemas.TypeSyncPushed:
		return "file_uploaded"
	case schemas.TypeSyncPulled:
		return "file_downloaded"
	}
	return ""
}

func (o *Observer) failure(ev *schemas.Event, name string, counter *prometheus.CounterVec) {
	var e schemas.Error
	if ev.Decode(&e) != nil {
		return
	}
	s := o.sessionOf(ev)
	o.log.Warn().Str("user", s.user).Str("thread", ev.Thread).Str("session_id", ev.Session).Str("command_id", ev.Process).Str("code", string(e.Code)).Str("reason", e.Message).Msg(name)
	counter.WithLabelValues(s.template, string(e.Code)).Inc()
}

func seconds(millis float64) float64 { return max(0, millis) / 1000 }
