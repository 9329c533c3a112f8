package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// streamSize and streamAge are a size and an age of the streams, with the flag and the environment variable that set it.
type (
	streamSize struct {
		flag, usage string
		of          *int64
	}
	streamAge struct {
		flag, usage string
		of          *time.Duration
	}
)

func streamSizes(t *events.Topology) []streamSize {
	return []streamSize{
		{"command-bytes", "the stream of commands that wait; default 256 MiB", &t.CommandBytes},
		{"event-bytes", "the stream of records; default 2 GiB", &t.EventBytes},
		{"event-tenant-bytes", "records kept of one tenant, whose commands are refused beyond it; default: seven times what it leaves free", &t.EventTenantBytes},
		{"log-bytes", "the stream of output; default 8 GiB", &t.LogBytes},
		{"log-process-bytes", "output kept of one process; default a sixteenth of --log-bytes", &t.LogProcessBytes},
		{"log-tenant-bytes", "output kept of one tenant; default half of --log-bytes", &t.LogTenantBytes},
		{"message-bytes", "the stream of messages, which refuses new ones when it is full; default 1 GiB", &t.MessageBytes},
		{"dead-letter-bytes", "the stream of dead letters; default 64 MiB", &t.DeadBytes},
	}
}

func streamAges(t *events.Topology) []streamAge {
	return []streamAge{
		{"command-age", "a command waits; default 24h", &t.CommandAge},
		{"event-age", "records and dead letters are kept; default 72h", &t.EventAge},
		{"log-age", "output is kept; default 24h", &t.LogAge},
		{"message-age", "messages are kept; default: without an end", &t.MessageAge},
	}
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// streamFlags are the sizes and ages of streams. What is not set is as it is, and for a new stream the default, or less where
// JetStream has less room.
func (w *workerFlags) streamFlags(f *pflag.FlagSet) {
	for _, s := range streamSizes(&w.topology) {
		f.Int64Var(s.of, s.flag, w.positive(variable(s.flag)), "most bytes `N` of "+s.usage+" ("+variable(s.flag)+")")
	}
	for _, s := range streamAges(&w.topology) {
		standard, _ := time.ParseDuration(w.Getenv(variable(s.flag))) // 0 where there is none, as with numbers
		f.DurationVar(s.of, s.flag, max(standard, 0), "time `DURATION` that "+s.usage+" ("+variable(s.flag)+")")
	}
}

func (w *workerFlags) checkStreams() error {
	for _, s := range streamSizes(&w.topology) {
		if *s.of < 0 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "--%s is %d: it must not be negative", s.flag, *s.of)
		}
	}
	for _, s := range streamAges(&w.topology) {
		if *s.of != 0 && *s.of < time.Second {
			return fmt.Errorf("--%s: %w", s.flag, schemas.Errorf(schemas.CodeInvalidArgument, "%s is too short: it must be at least 1s", *s.of))
		}
	}
	return nil
}
