package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func logsCommand(g *globals) *cobra.Command {
	var q client.LogQuery
	var since string
	var asJSON, timestamps, remove bool
	c := &cobra.Command{
		Use:   "logs [flags] PROCESS",
		Short: "Print a process's output, while it runs or afterwards",
		Example: `  sluice logs p1q2w3…                  # all of it
  sluice logs -f p1q2w3…               # and the new output
  sluice logs -f --tail 20 p1q2w3…     # the last 20 lines, and the new output
  sluice logs --since 10m --timestamps p1q2w3…
  sluice logs --thread t1 web          # of a name that --id gave
  sluice logs -f --from 1234 p1q2w3…   # from a sequence on
  sluice logs --delete p1q2w3… >log    # then nothing is kept of the output`,
		Args: oneProcess,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cmd.Flags().Changed("tail") && q.Tail < 1 {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--tail is %d: it must be at least 1", q.Tail)
			}
			if q.Since, err = parseSince(since, time.Now()); err != nil {
				return err
			}
			if part := firstChanged(cmd, "tail", "since", "from", "stdout-from", "stderr-from"); remove && part != "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "--delete deletes all of the output: leave out --%s, which prints a part of it", part)
			}
			q.Gap = gapPrinter(g.Main, asJSON)
			return g.with(cmd.Context(), hostOptions{}, func(ctx context.Context, c *client.Client) (err error) {
				if q.Process, err = named(ctx, c, q.Thread, args[0]); err != nil {
					return err
				}
				print := chunkPrinter(g.Main, asJSON, timestamps)
				if !remove {
					return c.Logs(ctx, q, print)
				}
				return printAndDelete(ctx, c, q, print)
			})
		},
	}
	threadFlag(c, &q.Thread, "", "`THREAD` of the process, which a name of --id needs; default: found by the process id")
	fromFlag(c, &q.From, "log")
	c.Flags().Int64Var(&q.StdoutFrom, "stdout-from", 0, "first byte `OFFSET` of standard output; --json shows them")
	c.Flags().Int64Var(&q.StderrFrom, "stderr-from", 0, "first byte `OFFSET` of standard error")
	f := c.Flags()
	f.IntVar(&q.Tail, "tail", 0, "only the last `N` lines of both streams together; default: all")
	f.StringVar(&since, "since", "", "only output stored since this `TIME`, such as 2026-01-02T15:04:05Z, or for a duration, such as 10m")
	f.BoolVar(&timestamps, "timestamps", false, "print before each line when its beginning was stored; --json always has it")
	followFlag(c, &q.Follow, "the process ends")
	f.BoolVar(&remove, "delete", false, "delete the output once all of it is printed; the process must have ended, or add --follow")
	jsonFlag(c, &asJSON, "each chunk and gap as one JSON object")
	return c
}

// printAndDelete prints the output of a process and deletes it then. What a process would print between the two would be lost: so it must have
// ended before, or is followed until it has.
func printAndDelete(ctx context.Context, c *client.Client, q client.LogQuery, print func(schemas.Chunk) error) error {
	p, err := c.Process(ctx, q.Thread, q.Process)
	if err != nil {
		return err
	}
	defer p.Close()
	if !q.Follow {
		info, err := p.Info(ctx)
		if err == nil && !info.Status.Ended() {
			err = schemas.Errorf(schemas.CodeConflict, "process %s has not ended: add --follow to print and delete its output at its end", q.Process)
		}
		if err != nil {
			return err
		}
	}
	if err := c.Logs(ctx, q, print); err != nil {
		return err
	}
	return p.DeleteOutput(ctx)
}

// firstChanged is the first of the flags that the command line has, or "".
func firstChanged(cmd *cobra.Command, flags ...string) string {
	for _, flag := range flags {
		if cmd.Flags().Changed(flag) {
			return flag
		}
	}
	return ""
}

// chunkLine is a chunk as --json prints it.
type chunkLine struct {
	Seq      uint64           `json:"seq"`
	Stream   schemas.Stream   `json:"stream"`
	Offset   int64            `json:"offset"`
	Time     time.Time        `json:"time,omitzero"`
	Data     string           `json:"data"`
	Encoding schemas.Encoding `json:"encoding,omitempty"`
}

// parseSince reads a time, in local time where it names no zone, or how long ago it was. The zero time stands for an empty text.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, schemas.Errorf(schemas.CodeInvalidArgument, "--since %q is no time: write 10m, 2026-01-02 or 2026-01-02T15:04:05Z", s)
}

func chunkPrinter(m *Main, asJSON, timestamps bool) func(schemas.Chunk) error {
	if asJSON {
		print := jsonLines[chunkLine](m)
		return func(k schemas.Chunk) error {
			line := chunkLine{Seq: k.Seq, Stream: k.Stream, Offset: k.Offset, Time: k.Time}
			line.Data, line.Encoding = schemas.EncodeOutput(k.Data)
			return print(line)
		}
	}
	open := make(map[schemas.Stream]bool, 2) // the last line has no newline yet
	return func(k schemas.Chunk) error {
		to := m.Stdout
		if k.Stream == schemas.Stderr {
			to = m.Stderr
		}
		data := k.Data
		if timestamps {
			data, open[k.Stream] = stamped(k, open[k.Stream]), !bytes.HasSuffix(k.Data, []byte("\n"))
		}
		_, err := to.Write(data)
		return err
	}
}

// stampLayout has one width for all times.
const stampLayout = "2006-01-02T15:04:05.000Z"

// stamped is a chunk's output with its time before each line that begins in it. open says that the first one began earlier.
func stamped(k schemas.Chunk, open bool) []byte {
	var out []byte
	for line := range bytes.Lines(k.Data) {
		if !open {
			out = append(k.Time.UTC().AppendFormat(out, stampLayout), ' ')
		}
		out, open = append(out, line...), false
	}
	return out
}

// gapLine is missing output as --json prints it.
type gapLine struct {
	Gap schemas.LogGap `json:"gap"`
}

func gapPrinter(m *Main, asJSON bool) func(schemas.LogGap) error {
	if asJSON {
		print := jsonLines[gapLine](m)
		return func(g schemas.LogGap) error { return print(gapLine{g}) }
	}
	return func(g schemas.LogGap) error {
		m.notice(fmt.Sprintf("bytes %d to %d of %s are missing: %s", g.From, g.To, g.Stream, g.Reason))
		return nil
	}
}

func eventsCommand(g *globals) *cobra.Command {
	var q client.EventQuery
	var labels []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "events",
		Short: "Print the events of sessions, sandboxes, processes and hooks",
		Example: `  sluice events
  sluice events -f --thread t1
  sluice events --label user=ann --label step=review
  sluice events --json --process p1q2w3…`,
		Args: noArgs,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if q.Labels, err = parsePairs("--label", labels); err != nil {
				return err
			}
			return printEach(g.Main, asJSON, "no event matches: `sluice exec` makes some", eventPrinter(g.Main, asJSON), func(fn func(*schemas.Event) error) error {
				return c.Events(ctx, q, fn)
			})
		}),
	}
	threadFlag(c, &q.Thread, "", "only events of this `THREAD`")
	fromFlag(c, &q.From, "event")
	followFlag(c, &q.Follow, "Ctrl+C")
	jsonFlag(c, &asJSON, "each event as one JSON object")
	c.Flags().StringVar(&q.Process, "process", "", "only events of this `PROCESS`")
	labelFlag(c, &labels, "only events of commands with this label `NAME=VALUE`; may be repeated")
	return c
}

func eventPrinter(m *Main, asJSON bool) func(*schemas.Event) error {
	if asJSON {
		return jsonLines[*schemas.Event](m)
	}
	return func(ev *schemas.Event) error {
		detail := eventDetail(ev)
		if id, text, ok := strings.Cut(detail, "  "); ok && m.narrow() {
			detail = text + "  " + id // what is cut first
		}
		return m.line(fmt.Sprintf("%-6d %s  %-20s %-12s %s", ev.Seq, m.eventTime(ev.Time), ev.Type, ev.Thread, detail))
	}
}

// eventDetail is the part of an event's data that the table shows.
func eventDetail(ev *schemas.Event) string {
	switch ev.Type {
	case schemas.TypeProcessAccepted:
		var a schemas.Accepted
		if ev.Decode(&a) == nil {
			return ev.Process + "  " + commandLine(a.Command, a.Args)
		}
	case schemas.TypeProcessExited, schemas.TypeProcessLost, schemas.TypeProcessRejected:
		var r schemas.Result
		if ev.Decode(&r) == nil {
			if r.Reason == schemas.ReasonRejected && r.Error != nil {
				return fmt.Sprintf("%s  %s: %s: %s", ev.Process, r.Reason, r.Error.Code, r.Error.Message)
			}
			return fmt.Sprintf("%s  %s, exit code %d, %.0f ms", ev.Process, r.Reason, r.ExitCode, r.DurationMS)
		}
	case schemas.TypeSandboxRunning, schemas.TypeSandboxFailed, schemas.TypeSandboxTerminated:
		var s schemas.SandboxInfo
		if ev.Decode(&s) == nil {
			return fmt.Sprintf("%s  %s, %.0f ms", s.ID, s.Provider, s.StartMS)
		}
	case schemas.TypeHookStarted, schemas.TypeHookFinished, schemas.TypeHookFailed:
		var h schemas.HookRun
		if ev.Decode(&h) == nil {
			return hookDetail(&h)
		}
	case schemas.TypeSyncPulled, schemas.TypeSyncPushed, schemas.TypeSyncConflict:
		var r schemas.SyncReport
		if ev.Decode(&r) == nil {
			return fmt.Sprintf("%s  %s, %s, %s, %.0f ms", r.Version, count(r.Files, "file"), count(r.Bytes, "byte"), count(len(r.Conflicts), "conflict"), r.DurationMS)
		}
	case schemas.TypeMessageSaved:
		var msg schemas.Message
		if ev.Decode(&msg) == nil {
			return fmt.Sprintf("%s  message %d: %s", msg.Process, msg.Seq, messageHeader(&msg))
		}
	case schemas.TypeLogGap:
		var g schemas.LogGap
		if ev.Decode(&g) == nil {
			return fmt.Sprintf("%s  bytes %d to %d of %s: %s", ev.Process, g.From, g.To, g.Stream, g.Reason)
		}
	case schemas.TypeValidationFailed, schemas.TypeLimitExceeded:
		var e schemas.Error
		if ev.Decode(&e) == nil {
			return e.Message
		}
	}
	return ev.Process
}

func hookDetail(h *schemas.HookRun) string {
	s := fmt.Sprintf("%s  %s", h.Phase, h.Hook)
	if h.Attempt > 1 {
		s += fmt.Sprintf(", attempt %d", h.Attempt)
	}
	if h.DurationMS > 0 {
		s += fmt.Sprintf(", %.1f ms", h.DurationMS)
	}
	if h.Error != nil {
		s += ": " + h.Error.Message
	}
	return s
}
