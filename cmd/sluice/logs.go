package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// with connects, runs f and disconnects. Ctrl+C ends f, and is no error.
func (m *Main) with(ctx context.Context, g *globals, f func(context.Context, *client.Client) error) error {
	ctx, stop := m.untilSignal(ctx)
	defer stop()
	r, err := m.reach(ctx, g, hosting{})
	if err != nil {
		return err
	}
	err = f(ctx, r.client)
	if ctx.Err() != nil {
		err = ignoreCanceled(err)
	}
	return errors.Join(err, r.close(ctx, m.note))
}

func (m *Main) logsCommand(g *globals) *cobra.Command {
	var q client.LogQuery
	var asJSON bool
	c := &cobra.Command{
		Use:   "logs [flags] PROCESS",
		Short: "Print a process's output, from any point, while it runs or afterwards",
		Example: `  sluice logs p1q2w3…                  # all of it
  sluice logs -f p1q2w3…               # and what is still to come
  sluice logs -f --from 1234 p1q2w3…   # from a sequence on, as --json shows them`,
		Args: oneProcess,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Process = args[0]
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				return c.Logs(ctx, q, m.chunkPrinter(asJSON))
			})
		},
	}
	f := c.Flags()
	f.BoolVarP(&q.Follow, "follow", "f", false, "go on until the process has ended")
	f.Uint64Var(&q.From, "from", 1, "begin at sequence `SEQ` of the log stream")
	f.StringVarP(&q.Thread, "thread", "t", "", "the process's `THREAD`; default: found by the process's id")
	f.BoolVar(&asJSON, "json", false, "print each chunk as one JSON object, with its sequence")
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

func (m *Main) chunkPrinter(asJSON bool) func(schemas.Chunk) error {
	if asJSON {
		enc := json.NewEncoder(m.Stdout)
		return func(k schemas.Chunk) error {
			line := chunkLine{Seq: k.Seq, Stream: k.Stream, Offset: k.Offset}
			line.Data, line.Encoding = schemas.EncodeOutput(k.Data)
			return enc.Encode(line)
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

func (m *Main) eventsCommand(g *globals) *cobra.Command {
	var q client.EventQuery
	var asJSON bool
	c := &cobra.Command{
		Use:   "events",
		Short: "Print what has happened: sessions, sandboxes, processes",
		Example: `  sluice events
  sluice events -f --thread t1
  sluice events --json --process p1q2w3…`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				return c.Events(ctx, q, m.eventPrinter(asJSON))
			})
		},
	}
	f := c.Flags()
	f.BoolVarP(&q.Follow, "follow", "f", false, "go on until Ctrl+C")
	f.Uint64Var(&q.From, "from", 1, "begin at sequence `SEQ` of the event stream")
	f.StringVarP(&q.Thread, "thread", "t", "", "only this `THREAD`'s")
	f.StringVar(&q.Process, "process", "", "only this `PROCESS`'s")
	f.BoolVar(&asJSON, "json", false, "print each event as one JSON object")
	return c
}

func (m *Main) eventPrinter(asJSON bool) func(*schemas.Event) error {
	if asJSON {
		enc := json.NewEncoder(m.Stdout)
		enc.SetEscapeHTML(false)
		return func(ev *schemas.Event) error { return enc.Encode(ev) }
	}
	return func(ev *schemas.Event) error {
		_, err := fmt.Fprintf(m.Stdout, "%-6d %s  %-20s %-12s %s\n", ev.Seq, ev.Time.Local().Format("15:04:05.000"), ev.Type, oneLine(ev.Thread), oneLine(eventDetail(ev)))
		return err
	}
}

// eventDetail is what a person wants to know of an event besides its name.
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
			return fmt.Sprintf("%s  message %d: %s", msg.Process, msg.Seq, speaker(&msg))
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
