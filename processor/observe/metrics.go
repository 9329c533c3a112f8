package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-dev/sluice/schemas"
)

// unknown is the template of what concerns no session that this worker has.
const unknown = "unknown"

// label is a template's name as metrics have it.
func label(template string) string {
	switch {
	case template == "":
		return "default"
	case !schemas.ValidID(template):
		return unknown
	}
	return template
}

// metrics are a worker's. docs/templates.md lists them.
type metrics struct {
	sessions, sandboxes, commands, violations, validation, limits, tokens, syncs, syncBytes *prometheus.CounterVec
	lifetime, duration, starts, hooks                                                       *prometheus.HistogramVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_" + name, Help: help}, labels)
	}
	// From a millisecond to more than a day.
	histogram := func(name, help string, least float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 4, 10)}, labels)
	}
	return &metrics{
		sessions:   counter("sessions_total", "Sessions, by what became of them: created, reused, expired, terminated.", "template", "outcome"),
		sandboxes:  counter("sandboxes_total", "Sandboxes that ran, and that failed.", "template", "outcome"),
		commands:   counter("commands_total", "Commands that were accepted, by how they ended: success, failure, killed, timed_out, oom, lost, rejected.", "template", "outcome"),
		violations: counter("policy_violations_total", "Commands that a template's policy refused.", "template"),
		validation: counter("validation_failures_total", "Commands that could never be accepted, by the code of the error.", "template", "outcome"),
		limits:     counter("limits_exceeded_total", "Limits that were reached, by the code of the error.", "template", "outcome"),
		tokens:     counter("tokens_total", "Tokens that agents said they used.", "template", "direction"),
		syncs:      counter("syncs_total", "Workspaces pulled, pushed, and in conflict.", "template", "outcome"),
		syncBytes:  counter("sync_bytes_total", "Bytes that syncs carried over.", "template", "outcome"),
		lifetime:   histogram("session_lifetime_seconds", "How long sessions lived.", 1, "template"),
		duration:   histogram("command_duration_seconds", "How long commands ran.", 0.001, "template", "outcome"),
		starts:     histogram("cold_start_seconds", "How long cold starts took: making the sandbox, and its hooks.", 0.001, "template", "part"),
		hooks:      histogram("hook_duration_seconds", "How long hooks ran.", 0.001, "template", "phase", "outcome"),
	}
}

func (m *metrics) register(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{
		m.sessions, m.sandboxes, m.commands, m.violations, m.validation, m.limits, m.tokens, m.syncs, m.syncBytes, m.lifetime, m.duration, m.starts, m.hooks,
	} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// active counts the sessions that this worker owns, by template.
type active struct{ observer *Observer }

func (active) desc() *prometheus.Desc {
	return prometheus.NewDesc("sluice_sessions_active", "Sessions that this worker owns.", []string{"template"}, nil)
}

// Describe implements prometheus.Collector.
func (a active) Describe(out chan<- *prometheus.Desc) { out <- a.desc() }

// Collect implements prometheus.Collector.
func (a active) Collect(out chan<- prometheus.Metric) {
	count := map[string]int{}
	a.observer.mu.Lock()
	for _, s := range a.observer.sessions {
		count[s.template]++
	}
	a.observer.mu.Unlock()
	for template, n := range count {
		out <- prometheus.MustNewConstMetric(a.desc(), prometheus.GaugeValue, float64(n), template)
	}
}

// PoolStats are the counts of a pool of ready sandboxes.
type PoolStats struct {
	// Hits found a sandbox ready, Misses waited for one, Exhausted were refused; Failed could not be made. All since the start.
	Hits, Misses, Exhausted, Failed int64
	// Ready, Making and InUse are how many there are now, Size how many are to be ready.
	Ready, Making, InUse, Size int
	// Wait is how long hits and misses took, all together.
	Wait time.Duration
}

// Pool adds the metrics of a pool. Errors: those of registering twice.
func Pool(registry prometheus.Registerer, provider string, stats func() PoolStats) error {
	return registry.Register(pool{provider, stats})
}

type pool struct {
	provider string
	stats    func() PoolStats
}

// Describe implements prometheus.Collector.
func (p pool) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, out) }

// Collect implements prometheus.Collector.
func (p pool) Collect(out chan<- prometheus.Metric) {
	s := p.stats()
	labels := prometheus.Labels{"provider": p.provider}
	for _, v := range []struct {
		name, help string
		kind       prometheus.ValueType
		value      float64
		outcome    string
	}{
		{"pool_requests_total", "Sandboxes asked of the pool: hit, miss, exhausted.", prometheus.CounterValue, float64(s.Hits), "hit"},
		{"pool_requests_total", "Sandboxes asked of the pool: hit, miss, exhausted.", prometheus.CounterValue, float64(s.Misses), "miss"},
		{"pool_requests_total", "Sandboxes asked of the pool: hit, miss, exhausted.", prometheus.CounterValue, float64(s.Exhausted), "exhausted"},
		{"pool_failures_total", "Members that could not be made.", prometheus.CounterValue, float64(s.Failed), ""},
		{"pool_wait_seconds_total", "Time that requests took, all together.", prometheus.CounterValue, s.Wait.Seconds(), ""},
		{"pool_size", "Sandboxes that are to be ready.", prometheus.GaugeValue, float64(s.Size), ""},
		{"pool_ready", "Sandboxes that are ready.", prometheus.GaugeValue, float64(s.Ready), ""},
		{"pool_making", "Sandboxes on their way.", prometheus.GaugeValue, float64(s.Making), ""},
		{"pool_in_use", "Sandboxes that belong to sessions.", prometheus.GaugeValue, float64(s.InUse), ""},
	} {
		names, values := []string(nil), []string(nil)
		if v.outcome != "" {
			names, values = []string{"outcome"}, []string{v.outcome}
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("sluice_"+v.name, v.help, names, labels), v.kind, v.value, values...)
	}
}
