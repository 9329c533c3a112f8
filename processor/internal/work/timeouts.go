package work

import "time"

// Timeouts bound every wait of a worker. Zero fields get the defaults; tests shorten them.
type Timeouts struct {
	Accept     time.Duration // to decide on a command and to record it, and to record the end of a session. Default 10 s.
	Start      time.Duration // to create a sandbox when its template sets no limit, and to start a process in it. Default 1 min.
	Pull       time.Duration // to create a sandbox whose image may have to be pulled first. Default 15 min.
	Hooks      time.Duration // for the hooks at the end of a session. Default 6 min: the push of a large workspace may take 5 min.
	Gone       time.Duration // for a sandbox that failed a start to report its end. Default 2 s.
	Silent     time.Duration // for the caller of a file operation with content to send its next message. Default 30 s.
	Answer     time.Duration // until the caller gets the result of a process whose end cannot be recorded. Default 10 s.
	Record     time.Duration // until the worker stops trying to record that end. Default 10 min.
	Kill       time.Duration // for killed processes to end at shutdown, after the grace; then their sandboxes end. Default 5 s.
	SandboxEnd time.Duration // for the sandboxes to end at shutdown. Default 20 s: a provider waits 10 s before it uses force.
}

// WithDefaults fills the zero fields.
func (t Timeouts) WithDefaults() Timeouts {
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{
		{&t.Accept, 10 * time.Second},
		{&t.Start, time.Minute},
		{&t.Pull, 15 * time.Minute},
		{&t.Hooks, 6 * time.Minute},
		{&t.Gone, 2 * time.Second},
		{&t.Silent, 30 * time.Second},
		{&t.Answer, 10 * time.Second},
		{&t.Record, 10 * time.Minute},
		{&t.Kill, 5 * time.Second},
		{&t.SandboxEnd, 20 * time.Second},
	} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	return t
}
