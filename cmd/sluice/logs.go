package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func logsCommand(g *globals) *cobra.Command {
	var q client.LogQuery
	var asJSON bool
	c := &cobra.Command{
		Use:   "logs [flags] PROCESS",
		Short: "Print a process's output, while it runs or afterwards",
		Example: `  sluice logs p1q2w3…                  # all of it
  sluice logs -f p1q2w3…               # and the new output
  sluice logs -f --from 1234 p1q2w3…   # from a sequence on`,
		Args: oneProcess,
		RunE: g.read(func(ctx context.Context, c *client.Client, args []string) error {
			q.Process = args[0]
			q.Gap = gapPrinter(g.Main, asJSON)
			return c.Logs(ctx, q, chunkPrinter(g.Main, asJSON))
		}),
	}
	threadFlag(c, &q.Thread, "", "`THREAD` of the process; default: found by the process id")
	fromFlag(c, &q.From, "log")
	c.Flags().Int64Var(&q.StdoutFrom, "stdout-from", 0, "first byte `OFFSET` of standard output; --json shows them")
	c.Flags().Int64Var(&q.StderrFrom, "stderr-from", 0, "first byte `OFFSET` of standard error")
	followFlag(c, &q.Follow, "the process ends")
	jsonFlag(c, &asJSON, "each chunk and gap as one JSON object")
	return c
}

// chunkLine is a chunk as --json prints it.
type chunkLine struct {
	Seq      uint64           `json:"seq"`
	Stream   schemas.Stream   `json:"stream"`
	Offset   int64            `json:"offset"`
	Data     string           `json:"data"`
	Encoding schemas.Encoding `json:"encoding,omitempty"`
}

func chunkPrinter(m *Main, asJSON bool) func(schemas.Chunk) error {
	if asJSON {
		print := jsonLines[chunkLine](m)
		return func(k schemas.Chunk) error {
			line := chunkLine{Seq: k.Seq, Stream: k.Stream, Offset: k.Offset}
			line.Data, line.Encoding = schemas.EncodeOutput(k.Data)
			return print(line)
		}
	}
	return func(k schemas.Chunk) error {
		to := m.Stdout
		if k.Stream == schemas.Stderr {
			to = m.Stderr
		}
		_, err := to.Write(k.Data)
		return err
	}
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
			return c.Events(ctx, q, eventPrinter(g.Main, asJSON))
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
		_, err := fmt.Fprintf(m.Stdout, "%-6d %s  %-20s %-12s %s\n", ev.Seq, ev.Time.Local().Format("15:04:05.000"), ev.Type, oneLine(ev.Thread), oneLine(eventDetail(ev)))
		return err
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
			return fmt.Sprintf("%s  %d files, %d bytes, %d conflicts, %.0f ms", r.Version, r.Files, r.Bytes, len(r.Conflicts), r.DurationMS)
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
