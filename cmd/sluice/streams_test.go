package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// TestSizesAndAgesOfStreams sets them by flags and by the environment. Ten minutes 14.
func TestSizesAndAgesOfStreams(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_LOG_AGE"], c.env["SLUICE_LOG_BYTES"], c.env["SLUICE_EVENT_AGE"] = "2h", "300000000", "90h"
	c.up("--command-bytes", "20000000", "--event-bytes", "40000000", "--event-age", "48h", "--command-age", "3h")
	got := map[string][2]int64{}
	for _, s := range decode[schemas.Status](t, c.run("status", "--json").stdout).Streams {
		got[s.Name[strings.LastIndex(s.Name, "-")+1:]] = [2]int64{s.MaxBytes, s.MaxAgeMS}
	}
	for name, want := range map[string][2]int64{
		"CMD": {20_000_000, (3 * time.Hour).Milliseconds()}, "EVT": {40_000_000, (48 * time.Hour).Milliseconds()}, "LOG": {300_000_000, (2 * time.Hour).Milliseconds()},
	} {
		testkit.Equal(t, "size and age of "+name, got[name], want)
	}
	for _, args := range [][]string{{"--message-bytes", "-1"}, {"--event-age", "-1s"}, {"--log-age", "10ms"}} {
		newCLI(t).run(append([]string{"up", "--provider", "local", "--listen", "127.0.0.1:0"}, args...)...).wantError(t, schemas.CodeInvalidArgument, args[0])
	}
}
