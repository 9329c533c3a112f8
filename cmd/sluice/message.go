package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/processor/answer"
	"github.com/sluice-dev/sluice/schemas"
)

func messageCommand(g *globals) *cobra.Command {
	var p client.Prompt
	var labels []string
	var asJSON, raw bool
	c := &cobra.Command{
		Use:   "message [flags] PROMPT…",
		Short: "Send a prompt to a thread's agent and print its answer",
		Long: `Send a prompt to a thread's agent and print its answer as it comes. The template of the thread's
session names the agent program. Ctrl+C is sent to the agent as a signal, and cancels a message that
is still queued; a second Ctrl+C kills the agent, and a third exits at once. When the terminal
closes, the agent continues. The exit code is the agent's. The messages of a thread are answered one
after the other. Without a PROMPT, or with -, the prompt is read from standard input.

The history is kept: "sluice messages THREAD" prints it.`,
		Example: `  sluice message --template echo-agent --thread t1 'hello there'
  sluice message --thread t1 'and again'           # the thread keeps its template
  git diff | sluice message --template reviewer --thread review -    # a template of yours`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if p.Text, err = g.prompt(args); err != nil {
				return err
			}
			if p.Origin, err = g.origin(labels); err != nil {
				return err
			}
			agent := &foreground{
				globals: g, own: hostOptions{worker: true, image: g.Getenv("SLUICE_IMAGE")}, json: asJSON, stdout: g.Stdout,
				start: func(ctx context.Context, c *client.Client) (*client.Execution, error) { return c.MessageStream(ctx, p) },
			}
			if raw || asJSON {
				return agent.run(cmd.Context())
			}
			r := answer.NewReader(g.Stdout, "")
			agent.stdout = r
			err = agent.run(cmd.Context())
			_ = r.Close() // a failed write was handled by output.write
			return err
		},
	}
	threadFlag(c, &p.Thread, defaultThread, "`THREAD` whose agent answers")
	sessionFlag(c, &p.Session)
	keyFlag(c, &p.Key)
	labelFlag(c, &labels, "label `NAME=VALUE` that all events of the message carry; may be repeated")
	jsonFlag(c, &asJSON, "the result as one JSON object instead of the answer")
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&p.Template, "template", g.Getenv("SLUICE_TEMPLATE"), "`TEMPLATE` of the session that the message creates (SLUICE_TEMPLATE)")
	f.StringVar(&p.User, "user", "", "name of the `USER` in the history")
	f.DurationVar(&p.Timeout, "timeout", 0, "kill the agent after `DURATION`, such as 5m; default: the template's")
	f.BoolVar(&raw, "raw", false, "print the agent's output unchanged, with its JSON lines")
	return c
}

// prompt is the arguments, or standard input.
func (m *Main) prompt(args []string) (string, error) {
	if len(args) > 0 && (len(args) > 1 || args[0] != "-") {
		return strings.Join(args, " "), nil
	}
	text, err := io.ReadAll(io.LimitReader(m.Stdin, schemas.MaxPromptBytes+1))
	switch {
	case err != nil:
		return "", schemas.Errorf(schemas.CodeUnavailable, "read the prompt from standard input: %w", err)
	case len(text) > schemas.MaxPromptBytes:
		return "", schemas.Errorf(schemas.CodeTooLarge, "the prompt on standard input has more than %d bytes: put the text into the workspace, and name the file in the prompt", schemas.MaxPromptBytes)
	case strings.TrimSpace(string(text)) == "":
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "there is no prompt: write it as an argument, as in `sluice message 'hello'`, or pass it on standard input")
	}
	return string(text), nil
}

func messagesCommand(g *globals) *cobra.Command {
	var q client.MessageQuery
	var asJSON bool
	c := &cobra.Command{
		Use:   "messages",
		Short: "Print a thread's messages: prompts and answers, in order",
		Example: `  sluice messages t1
  sluice messages t1 -f               # and the new ones
  sluice messages t1 --from 12 --json # from a sequence on`,
		RunE: g.read(func(ctx context.Context, c *client.Client, _ []string) error {
			return printEach(g.Main, asJSON, "thread "+q.Thread+" has no messages: `sluice message` sends one", messagePrinter(g.Main, asJSON), func(fn func(*schemas.Message) error) error {
				return c.Messages(ctx, q, fn)
			})
		}),
	}
	threadArg(c, &q.Thread, "`THREAD` whose messages are printed")
	fromFlag(c, &q.From, "message")
	followFlag(c, &q.Follow, "Ctrl+C")
	jsonFlag(c, &asJSON, "each message as one JSON object")
	return c
}

func messagePrinter(m *Main, asJSON bool) func(*schemas.Message) error {
	if asJSON {
		return jsonLines[*schemas.Message](m)
	}
	return func(msg *schemas.Message) error {
		err := m.line(fmt.Sprintf("%-6d %s  %s", msg.Seq, m.eventTime(msg.Time), messageHeader(msg)))
		if err == nil {
			_, err = fmt.Fprintln(m.Stdout, m.indented(msg.Text))
		}
		return err
	}
}

// messageHeader is a message's author, and how the agent ended.
func messageHeader(msg *schemas.Message) string {
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
		s += "  truncated: `sluice logs " + msg.Process + "` has all of it"
	}
	return s
}

// indented is a message's text, wrapped to the terminal and indented so that no line of it looks like a header.
func (m *Main) indented(text string) string {
	lines := strings.Split(strings.TrimRight(printable(text), "\n"), "\n")
	if most := m.width(); most > 0 {
		var wrapped []string
		for _, line := range lines {
			wrapped = append(wrapped, wrap(strings.ReplaceAll(line, "\t", "    "), max(minText, most-4))...)
		}
		lines = wrapped
	}
	return "    " + strings.Join(lines, "\n    ")
}
