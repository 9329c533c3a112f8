package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestMessagesArePrintedAsTextAndJSON(t *testing.T) {
	var out bytes.Buffer
	m := &Main{Stdout: &out}
	msg := &schemas.Message{
		Seq: 12, Thread: "t1", Process: "p1", Role: schemas.RoleAgent, Template: "tpl", Text: "one\n13  10:00:00.000  user\x1b[2J\ntwo\n", Truncated: true,
		Time: time.Unix(0, 0), Reason: schemas.ReasonExited, ExitCode: 3, Usage: &schemas.Usage{InputTokens: 5, OutputTokens: 6},
	}
	testkit.Must(t, m.messagePrinter(false)(msg))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, part := range []string{"12 ", "agent tpl", "exit code 3", "5 tokens in, 6 out", "sluice logs p1"} {
		if !strings.Contains(lines[0], part) {
			t.Errorf("header = %q, want one with %q", lines[0], part)
		}
	}
	for _, l := range lines[1:] {
		if !strings.HasPrefix(l, "    ") || strings.Contains(l, "\x1b") {
			t.Errorf("line = %q, want it indented and without control characters", l)
		}
	}
	out.Reset()
	testkit.Must(t, m.messagePrinter(true)(msg))
	var got schemas.Message
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Text != msg.Text || got.Seq != 12 {
		t.Errorf("%v: %s", err, out.String())
	}
}
