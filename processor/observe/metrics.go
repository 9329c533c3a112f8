package observe

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-dev/sluice/schemas"
)

// unknown is the template label of events of sessions that this worker does not own.
const unknown = "unknown"

// label returns the template label of metrics.
func label(template string) string {
	switch {
	case template == "":
		return "default"
	case !schemas.ValidID(template):
		return unknown
	}
	return template
}

// metrics are a worker's metrics. docs/templates.md lists them.
type metrics struct {
	sessions, sandboxes, commands, violations, validation, limits, tokens, syncs, syncBytes, fileBytes, dropped *prometheus.CounterVec
	lifetime, duration, starts, hooks                                                                           *prometheus.HistogramVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_" + name, Help: help}, labels)
	}
	// 10 buckets, each 4 times the one before: from 1 ms they reach 4 min, from 1 s 3 days.
	histogram := func(name, help string, least float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 4, 10)}, labels)
	}
	return &metrics{
		sessions:   counter("sessions_total", "Sessions by outcome: created, reused, expired, terminated.", "template", "outcome"),
		sandboxes:  counter("sandboxes_total", "Sandboxes by outcome: running, failed.", "template", "outcome"),
		commands:   counter("commands_total", "Accepted commands by outcome: success, failure, killed, timed_out, oom, lost, rejected.", "template", "outcome"),
		violations: counter("policy_violations_total", "Commands that the template's policy refused.", "template"),
		validation: counter("validation_failures_total", "Invalid commands by error code.", "template", "outcome"),
		limits:     counter("limits_exceeded_total", "Limits reached by error code.", "template", "outcome"),
		tokens:     counter("tokens_total", "Tokens that agents reported.", "template", "direction"),
		syncs:      counter("syncs_total", "Workspace syncs by outcome: pulled, pushed, conflict.", "template", "outcome"),
		syncBytes:  counter("sync_bytes_total", "Bytes transferred by syncs.", "template", "outcome"),
		fileBytes:  counter("file_bytes_total", "Bytes of files that clients put in or took out, by outcome: uploaded, downloaded.", "template", "outcome"),
		dropped:    counter("events_dropped_total", "Events that were not stored, by type.", "type"),
		lifetime:   histogram("session_lifetime_seconds", "Lifetime of sessions.", 1, "template"),
		duration:   histogram("command_duration_seconds", "Duration of commands.", 0.001, "template", "outcome"),
		starts:     histogram("cold_start_seconds", "Duration of cold starts by part: sandbox, hooks.", 0.001, "template", "part"),
		hooks:      histogram("hook_duration_seconds", "Duration of hooks.", 0.001, "template", "phase", "outcome"),
	}
}

func (m *metrics) register(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{
		m.sessions, m.sandboxes, m.commands, m.violations, m.validation, m.limits, m.tokens, m.syncs, m.syncBytes, m.fileBytes, m.dropped,
		m.lifetime, m.duration, m.starts, m.hooks,
	} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// active collects the number of sessions that this worker owns, by template.
type active struct{ observer *Observer }

func (active) desc() *prometheus.Desc {
	return prometheus.NewDesc("sluice_sessions_active", "Sessions owned by this worker.", []string{"template"}, nil)
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

// Disk registers the metrics of the file system of the workspaces. Errors: those of the registry, for a second registration.
func Disk(registry prometheus.Registerer, usage func() schemas.WorkerDisk) error {
	gauge := func(name, help string, value func(schemas.WorkerDisk) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_" + name, Help: help}, func() float64 { return float64(value(usage())) })
	}
	return errors.Join(
		registry.Register(gauge("disk_free_bytes", "Free space on the disk of the workspaces.", func(d schemas.WorkerDisk) int64 { return d.FreeBytes })),
		registry.Register(gauge("disk_min_free_bytes", "Free space below which no process starts.", func(d schemas.WorkerDisk) int64 { return d.MinFreeBytes })),
	)
}

// PoolStats are the statistics of a sandbox pool.
type PoolStats struct {
	// Hits counts requests that got a ready sandbox, Misses those that waited for one, Exhausted those that were refused. Failed
	// counts sandboxes that could not be created. All count from the worker's start.
	Hits, Misses, Exhausted, Failed int64
	// Ready, Making and InUse are the current numbers of sandboxes that are ready, being created and in use. Size is the target
	// number of ready sandboxes.
	Ready, Making, InUse, Size int
	// Wait is the total time of hits and misses.
	Wait time.Duration
}

// Pool registers the metrics of a pool. Errors: those of the registry, for a second registration.
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
		{"pool_requests_total", "Pool requests by outcome: hit, miss, exhausted.", prometheus.CounterValue, float64(s.Hits), "hit"},
		{"pool_requests_total", "Pool requests by outcome: hit, miss, exhausted.", prometheus.CounterValue, float64(s.Misses), "miss"},
		{"pool_requests_total", "Pool requests by outcome: hit, miss, exhausted.", prometheus.CounterValue, float64(s.Exhausted), "exhausted"},
		{"pool_failures_total", "Sandboxes that the pool could not create.", prometheus.CounterValue, float64(s.Failed), ""},
		{"pool_wait_seconds_total", "Total duration of pool requests.", prometheus.CounterValue, s.Wait.Seconds(), ""},
		{"pool_size", "Target number of ready sandboxes.", prometheus.GaugeValue, float64(s.Size), ""},
		{"pool_ready", "Ready sandboxes.", prometheus.GaugeValue, float64(s.Ready), ""},
		{"pool_making", "Sandboxes being created.", prometheus.GaugeValue, float64(s.Making), ""},
		{"pool_in_use", "Sandboxes in use by sessions.", prometheus.GaugeValue, float64(s.InUse), ""},
	} {
		names, values := []string(nil), []string(nil)
		if v.outcome != "" {
			names, values = []string{"outcome"}, []string{v.outcome}
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("sluice_"+v.name, v.help, names, labels), v.kind, v.value, values...)
	}
}
