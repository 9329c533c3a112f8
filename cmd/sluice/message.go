package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/processor/answer"
)

func (m *Main) messageCommand(g *globals) *cobra.Command {
	var p client.Prompt
	var asJSON, raw bool
	c := &cobra.Command{
		Use:   "message [flags] PROMPT…",
		Short: "Have a thread's agent answer a prompt; the answer streams through",
		Long: `Have a thread's agent answer a prompt. The template that the thread's session was made from says which program that is. The
answer streams through as the agent prints it, Ctrl+C goes to the agent as a signal (a second one leaves at once), and the exit
code is the agent's. Messages of one thread are answered one after the other. Without a PROMPT, or with -, it is read from
standard input.

What was said is kept: ` + "`sluice messages --thread THREAD`" + ` shows it.`,
		Example: `  sluice message --template echo-agent --thread t1 'hello there'
  sluice message --thread t1 'and again'           # the thread keeps its template
  git diff | sluice message --template claude-code --thread review -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if p.Text, err = m.prompt(args); err != nil {
				return err
			}
			t := task{own: hosting{image: m.Getenv("SLUICE_IMAGE")}, json: asJSON, stdout: m.Stdout, start: func(ctx context.Context, c *client.Client) (*client.Execution, error) {
				return c.MessageStream(ctx, p)
			}}
			if raw || asJSON {
				return m.attend(cmd.Context(), g, t)
			}
			r := answer.NewReader(m.Stdout, "")
			t.stdout = r
			err = m.attend(cmd.Context(), g, t)
			_ = r.Close() // the output was told already that its reader has gone
			return err
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&p.Thread, "thread", "t", defaultThread, "`THREAD` whose agent answers")
	f.StringVar(&p.Template, "template", m.Getenv("SLUICE_TEMPLATE"), "`TEMPLATE` for a thread that has no session yet; `sluice template list` shows them (SLUICE_TEMPLATE)")
	f.StringVar(&p.Session, "session", "", "refuse if the thread's session is not the one with this `ID`")
	f.StringVar(&p.User, "user", "", "`NAME` of who says it, for the history")
	f.DurationVar(&p.Timeout, "timeout", 0, "end the agent after `D`, such as 5m; default: the template's")
	f.StringVar(&p.Key, "key", "", "idempotency `KEY`: the same key is answered once")
	f.BoolVar(&asJSON, "json", false, "print the result as one JSON object instead of the answer")
	f.BoolVar(&raw, "raw", false, "print what the agent prints as it is, its JSON lines too")
	return c
}

// prompt is what the arguments say, or standard input.
func (m *Main) prompt(args []string) (string, error) {
	if len(args) > 0 && (len(args) > 1 || args[0] != "-") {
		return strings.Join(args, " "), nil
	}
	text, err := io.ReadAll(io.LimitReader(m.Stdin, schemas.MaxPromptBytes+1))
	switch {
	case err != nil:
		return "", schemas.Errorf(schemas.CodeUnavailable, "read the prompt from standard input: %w", err)
	case len(text) > schemas.MaxPromptBytes:
		return "", schemas.Errorf(schemas.CodeTooLarge, "the prompt on standard input is over %d bytes: put the text into the workspace, and name the file in the prompt", schemas.MaxPromptBytes)
	case strings.TrimSpace(string(text)) == "":
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "there is no prompt: say it, as in `sluice message 'hello'`, or pass it on standard input")
	}
	return string(text), nil
}
