package service

import (
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// clocks are the times of a service.
type clocks struct {
	start    time.Duration   // until it has to be healthy
	first    time.Duration   // until the first probe
	poll     time.Duration   // between the probes before it is healthy
	monitor  time.Duration   // between the probes from then on
	probe    time.Duration   // for one probe
	grace    time.Duration   // between SIGTERM and SIGKILL
	failures int             // probes in a row that make a running service unhealthy
	backoff  []time.Duration // before each restart in a row
	attempts int             // starts in a row, the first one included
}

// defaultClocks are those of the documents.
func defaultClocks() clocks {
	return clocks{
		start: 30 * time.Second, first: 150 * time.Millisecond, poll: 500 * time.Millisecond, probe: 2 * time.Second,
		monitor: 10 * time.Second, failures: 3, grace: 5 * time.Second,
		backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, attempts: 3,
	}
}

// clocksOf are those that a service asks for.
func clocksOf(spec *schemas.ServiceSpec) clocks {
	c := defaultClocks()
	set := func(d *time.Duration, ms int64) {
		if ms > 0 {
			*d = time.Duration(ms) * time.Millisecond
		}
	}
	set(&c.start, spec.StartTimeoutMS)
	set(&c.grace, spec.GraceMS)
	if h := spec.Health; h != nil {
		set(&c.monitor, h.IntervalMS)
		set(&c.probe, h.TimeoutMS)
	}
	return c
}

// occurrence is what has happened to a service.
type occurrence int

const (
	occurStart   occurrence = iota // it is to be started
	occurAdopt                     // its process runs already: an earlier incarnation of the worker started it
	occurLaunch                    // its process runs
	occurWake                      // the time of the last step has come
	occurHealthy                   // a probe succeeded
	occurSick                      // a probe failed
	occurEnd                       // its process has ended, or could not start
	occurStop                      // it is to be stopped
)

// action is what to do with a service.
type action int

const (
	doNothing action = iota
	doLaunch         // start its process
	doProbe          // check its health
	doKill           // end its process
)

// step is what to do, and when to come back with occurWake unless something happens before. The zero time is never.
type step struct {
	do   action
	wake time.Time
}

// machine is the life of a service. It has no clock and does nothing itself: next says what to do.
//
//	                 healthy               3 failures, or the end of its process
//	starting ──────────────────► running ─────────────────────────────────► unhealthy
//	   ▲  │ end, or 30 s: again after 1, 2 s                                 │
//	   │  └─► failed, after 3 starts in a row                                │ killed; after 1, 2, 4 s
//	   └─────────────────────────────────────────────────────────────────────┘
//	any ──stop──► stopping ──► stopped
type machine struct {
	clocks  clocks
	checked bool // it has a health check
	state   schemas.ServiceState

	alive    bool      // its process has not ended
	starts   int       // in a row
	restarts int       // delays in a row
	failures int       // probes in a row
	deadline time.Time // of the start
	hopeless bool      // another start would fail as the last one
}

// next takes the life of a service one step on.
func (m *machine) next(o occurrence, now time.Time) step {
	switch {
	case o == occurStop:
		return m.stop()
	case o == occurAdopt:
		return m.adopt(now)
	}
	switch m.state {
	case schemas.ServiceStopping:
		if o == occurEnd {
			m.alive, m.state = false, schemas.ServiceStopped
		}
		return step{}
	case schemas.ServiceStopped, schemas.ServiceFailed:
		return step{}
	}
	switch o {
	case occurStart:
		return m.launch()
	case occurLaunch:
		m.deadline = now.Add(m.clocks.start)
		return step{wake: now.Add(m.clocks.first)}
	case occurEnd:
		return m.end(now)
	case occurWake:
		return m.wake(now)
	case occurHealthy:
		return m.healthy(now)
	default:
		return m.sick(now)
	}
}

func (m *machine) launch() step {
	m.state, m.alive = schemas.ServiceStarting, true
	m.starts++
	return step{do: doLaunch}
}

// adopt goes on in the state on record. A start begins anew, with the whole time.
func (m *machine) adopt(now time.Time) step {
	switch m.state {
	case schemas.ServiceRunning:
		return m.wake(now)
	case schemas.ServiceUnhealthy, schemas.ServiceStopping:
		return step{do: doKill}
	default:
		m.deadline = now.Add(m.clocks.start)
		return m.wake(now)
	}
}

func (m *machine) stop() step {
	switch {
	case m.state.Ended(), m.state == schemas.ServiceStopping:
		return step{}
	case m.alive:
		m.state = schemas.ServiceStopping
		return step{do: doKill}
	default:
		m.state = schemas.ServiceStopped
		return step{}
	}
}

// end is the end of its process, by itself or by a kill.
func (m *machine) end(now time.Time) step {
	if !m.alive {
		return step{}
	}
	m.alive, m.failures = false, 0
	if m.starts >= m.clocks.attempts || m.hopeless {
		m.state = schemas.ServiceFailed
		return step{}
	}
	if m.state == schemas.ServiceRunning {
		m.state = schemas.ServiceUnhealthy
	}
	delay := m.clocks.backoff[min(m.restarts, len(m.clocks.backoff)-1)]
	m.restarts++
	return step{wake: now.Add(delay)}
}

func (m *machine) wake(now time.Time) step {
	switch {
	case !m.alive:
		return m.launch()
	case m.state == schemas.ServiceUnhealthy: // it is being killed
		return step{}
	case m.state == schemas.ServiceStarting && m.checked && !now.Before(m.deadline):
		return step{do: doKill}
	case m.checked:
		return step{do: doProbe}
	default:
		return m.healthy(now) // it runs, which is all that is known
	}
}

func (m *machine) healthy(now time.Time) step {
	m.failures = 0
	if m.state == schemas.ServiceStarting {
		m.state = schemas.ServiceRunning
	} else {
		// It has run for a while: its next failure is not in a row with the last one.
		m.starts, m.restarts = 0, 0
	}
	return step{wake: now.Add(m.clocks.monitor)}
}

func (m *machine) sick(now time.Time) step {
	if m.state == schemas.ServiceStarting {
		if !now.Before(m.deadline) {
			return step{do: doKill}
		}
		at := now.Add(m.clocks.poll)
		if at.After(m.deadline) {
			at = m.deadline
		}
		return step{wake: at}
	}
	if m.failures++; m.failures < m.clocks.failures {
		return step{wake: now.Add(m.clocks.monitor)}
	}
	m.state = schemas.ServiceUnhealthy
	return step{do: doKill}
}
