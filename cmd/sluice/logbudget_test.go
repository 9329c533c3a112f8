package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 11: `logs`, `exec --json` and `status` show the budgets of output, and what was dropped because of them.
func TestDroppedOutputIsShown(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0", "--log-bytes", "-1").wantError(t, schemas.CodeInvalidArgument, "--log-bytes")
	c.up("--log-bytes", "100000000", "--log-process-bytes", "1000000", "--log-tenant-bytes", "50000000")
	r := c.exec("--json", "--key", "k", "--", "bash", "-c", "yes 0123456789 | head -c 8000000; echo end >&2").result(t)
	testkit.Equal(t, "success", r.Success, true)
	testkit.Equal(t, "bytes of stdout in the result", int64(len(r.Stdout)), schemas.DefaultOutputLimit)
	logs := c.run("logs", r.Process)
	logs.check(t).exits(0).reports("bytes 0 to ", "of stdout are missing")
	var gap gapLine
	for line := range strings.Lines(c.run("logs", "--json", r.Process).stdout) {
		if strings.HasPrefix(line, `{"gap"`) { // stderr may come before
			testkit.Must(t, json.Unmarshal([]byte(line), &gap))
		}
	}
	testkit.Equal(t, "gap", gap.Gap.To, r.StdoutBytes-int64(len(logs.stdout)))
	c.run("events", "--process", r.Process).check(t).printsPart("log.gap", "of stdout")
	again := c.exec("--json", "--key", "k", "--", "bash", "-c", "yes 0123456789 | head -c 8000000; echo end >&2").result(t)
	if len(again.Gaps) != 1 || again.Gaps[0].To != gap.Gap.To || !again.StdoutTruncated {
		t.Errorf("gaps of the replay = %+v, truncated %v; want the one of the log, and true", again.Gaps, again.StdoutTruncated)
	}
	c.run("status").check(t).printsPart("kept, at most 47.7 MiB, and 976.6 KiB of a process")
}
