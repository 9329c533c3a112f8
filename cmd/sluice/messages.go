package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func (m *Main) messagesCommand(g *globals) *cobra.Command {
	var q client.MessageQuery
	var asJSON bool
	c := &cobra.Command{
		Use:   "messages --thread THREAD [flags]",
		Short: "Print a conversation's history: prompts and answers, in order, from any point",
		Example: `  sluice messages --thread t1
  sluice messages --thread t1 -f               # and what is still to come
  sluice messages --thread t1 --from 12 --json # from a sequence on, as --json shows them`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Thread == "" {
				return schemas.Errorf(schemas.CodeInvalidArgument, "name the conversation: --thread THREAD")
			}
			return m.with(cmd.Context(), g, func(ctx context.Context, c *client.Client) error {
				return c.Messages(ctx, q, m.messagePrinter(asJSON))
			})
		},
	}
	f := c.Flags()
	f.StringVarP(&q.Thread, "thread", "t", "", "the conversation's `THREAD`")
	f.Uint64Var(&q.From, "from", 1, "begin at sequence `SEQ` of the message stream")
	f.BoolVarP(&q.Follow, "follow", "f", false, "go on until Ctrl+C")
	f.BoolVar(&asJSON, "json", false, "print each message as one JSON object")
	return c
}

func (m *Main) messagePrinter(asJSON bool) func(*schemas.Message) error {
	if asJSON {
		enc := json.NewEncoder(m.Stdout)
		enc.SetEscapeHTML(false)
		return func(msg *schemas.Message) error { return enc.Encode(msg) }
	}
	return func(msg *schemas.Message) error {
		_, err := fmt.Fprintf(m.Stdout, "%-6d %s  %s\n%s\n", msg.Seq, msg.Time.Local().Format("15:04:05.000"), oneLine(speaker(msg)), indented(msg.Text))
		return err
	}
}

// speaker says who speaks, and what became of it.
func speaker(msg *schemas.Message) string {
	s := string(msg.Role)
	name := msg.User
	if msg.Role == schemas.RoleAgent {
		name = msg.Template
	}
	if name != "" {
		s += " " + name
	}
	if msg.Reason != "" && msg.ExitCode != 0 {
		s += fmt.Sprintf("  %s, exit code %d", msg.Reason, msg.ExitCode)
	}
	if msg.Usage != nil {
		s += fmt.Sprintf("  %d tokens in, %d out", msg.Usage.InputTokens, msg.Usage.OutputTokens)
	}
	if msg.Truncated {
		s += "  cut: `sluice logs " + msg.Process + "` has all of it"
	}
	return s
}

// indented keeps a message from pretending to be the head of another.
func indented(text string) string {
	text = strings.TrimRight(printable(text), "\n")
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}
