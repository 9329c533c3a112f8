package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// streamSize and streamAge are a size and an age of the streams, with the flag and the environment variable that set it.
type (
	streamSize struct {
		flag, usage string
		of          *int64
		share       bool // of a stream, for a tenant or a process
	}
	streamAge struct {
		flag, usage string
		of          *time.Duration
	}
)

// The least size of a stream, and of a share of one, in bytes. A smaller one has no room for a command, a message or the records of a
// process, and is likely a size without its unit, which would delete what the stream holds, or refuse every command.
const (
	leastStream = 1 << 20
	leastShare  = 1 << 16
)

// shareSize is the size of a share, in which 0 is the default also where the streams have another.
type shareSize int64

func parseShare(text string) (int64, error) {
	n, err := template.ParseSize(text)
	if err == nil && n == 0 {
		n = events.DefaultShare
	}
	return n, err
}

// Set implements pflag.Value.
func (s *shareSize) Set(text string) error {
	n, err := parseShare(text)
	*s = shareSize(n)
	return err
}

// String implements pflag.Value.
func (s *shareSize) String() string { return template.FormatSize(max(int64(*s), 0)) }

// Type implements pflag.Value.
func (s *shareSize) Type() string { return "size" }

func streamSizes(t *events.Topology) []streamSize {
	return []streamSize{
		{"command-bytes", "the stream of commands that wait; default 256 MiB", &t.CommandBytes, false},
		{"event-bytes", "the stream of records; default 2 GiB", &t.EventBytes, false},
		{"event-tenant-bytes", "records kept of one tenant, whose commands are refused beyond it; default: seven times what it leaves free", &t.EventTenantBytes, true},
		{"log-bytes", "the stream of output; default 8 GiB", &t.LogBytes, false},
		{"log-process-bytes", "output kept of one process; default a sixteenth of --log-bytes", &t.LogProcessBytes, true},
		{"log-tenant-bytes", "output kept of one tenant; default half of --log-bytes", &t.LogTenantBytes, true},
		{"message-bytes", "the stream of messages, which refuses new ones when it is full; default 1 GiB", &t.MessageBytes, false},
		{"dead-letter-bytes", "the stream of dead letters; default 64 MiB", &t.DeadBytes, false},
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
		parse, value, usage := template.ParseSize, pflag.Value((*size)(s.of)), s.usage
		if s.share {
			parse, value, usage = parseShare, (*shareSize)(s.of), usage+"; 0 restores it"
		}
		var err error
		*s.of, err = fromEnv(w.Main, variable(s.flag), 0, parse)
		f.Var(value, s.flag, "most bytes `SIZE` of "+usage+" ("+variable(s.flag)+")")
		annotate(f, s.flag, err)
	}
	for _, s := range streamAges(&w.topology) {
		standard, err := fromEnv(w.Main, variable(s.flag), 0, duration)
		f.DurationVar(s.of, s.flag, standard, "time `DURATION` that "+s.usage+" ("+variable(s.flag)+")")
		annotate(f, s.flag, err)
	}
}

func (w *workerFlags) checkStreams() error {
	for _, s := range streamSizes(&w.topology) {
		least, orDefault := int64(leastStream), ""
		if s.share {
			least, orDefault = leastShare, ", or 0 for the default"
		}
		if *s.of > 0 && *s.of < least {
			return schemas.Errorf(schemas.CodeInvalidArgument, "--%s is %d bytes: it must be at least %s%s", s.flag, *s.of, template.FormatSize(least), orDefault)
		}
	}
	for _, s := range streamAges(&w.topology) {
		if *s.of != 0 && *s.of < time.Second {
			return fmt.Errorf("--%s: %w", s.flag, schemas.Errorf(schemas.CodeInvalidArgument, "%s is too short: it must be at least 1s", *s.of))
		}
	}
	return nil
}
