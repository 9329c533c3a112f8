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
	for _, args := range [][]string{{"--message-bytes", "-1"}, {"--event-age", "-1s"}, {"--log-age", "10ms"}, {"--event-tenant-bytes", "1"}, {"--log-process-bytes", "65535"}} {
		newCLI(t).run(append([]string{"up", "--provider", "local", "--listen", "127.0.0.1:0"}, args...)...).wantError(t, schemas.CodeInvalidArgument, args[0])
	}
}

// A bound of a tenant's records stays when it is not set again, and 0 removes it.
func TestEventTenantBytesIsRestored(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, tt := range []struct {
		flags   []string
		env     string
		bounded bool
	}{
		{[]string{"--event-tenant-bytes", "64KiB"}, "", true}, {nil, "", true}, {[]string{"--event-tenant-bytes", "0"}, "", false}, {nil, "", false}, {nil, "64KiB", true}, {nil, "0", false},
	} {
		c.env["SLUICE_EVENT_TENANT_BYTES"] = tt.env
		s := c.up(tt.flags...)
		records := decode[schemas.Status](t, c.run("status", "--json").stdout).Records
		if bounded := records.MaxTenantBytes == 64<<10; bounded != tt.bounded || records.MaxTenantBytes == 0 {
			t.Errorf("%v, %q: a tenant may hold %d bytes, want a bound of 64 KiB: %v", tt.flags, tt.env, records.MaxTenantBytes, tt.bounded)
		}
		s.stop()
	}
}
