package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

func TestMessagesArePrintedForPeopleAndPrograms(t *testing.T) {
	var out bytes.Buffer
	m := &Main{Stdout: &out}
	msg := &schemas.Message{
		Seq: 12, Thread: "t1", Process: "p1", Role: schemas.RoleAgent, Template: "tpl", Text: "one\n13  10:00:00.000  user\x1b[2J\ntwo\n", Truncated: true,
		Time: time.Unix(0, 0), Reason: schemas.ReasonExited, ExitCode: 3, Usage: &schemas.Usage{InputTokens: 5, OutputTokens: 6},
	}
	if err := m.messagePrinter(false)(msg); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, part := range []string{"12 ", "agent tpl", "exit code 3", "5 tokens in, 6 out", "sluice logs p1"} {
		if !strings.Contains(lines[0], part) {
			t.Errorf("%q is not in %q", part, lines[0])
		}
	}
	for _, l := range lines[1:] {
		if !strings.HasPrefix(l, "    ") || strings.Contains(l, "\x1b") {
			t.Errorf("%q could be taken for something else", l)
		}
	}
	out.Reset()
	if err := m.messagePrinter(true)(msg); err != nil {
		t.Fatal(err)
	}
	var got schemas.Message
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Text != msg.Text || got.Seq != 12 {
		t.Errorf("%v: %s", err, out.String())
	}
}
