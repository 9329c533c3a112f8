package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/client"
)

const (
	wrkConnections = 64
	wrkRounds      = 5
	wrkSeconds     = 4
)

// wrkScript sends commands, in turn to each session, and prints one line of numbers at the end.
const wrkScript = `local bodies, i = { %s }, 0
local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer %s" }
request = function()
  i = i %% #bodies + 1
  return wrk.format("POST", "/execute", headers, bodies[i])
end
done = function(summary)
  local e = summary.errors
  print(string.format("COUNT %%d %%d %%d %%d", summary.requests, summary.duration, e.status, e.connect + e.read + e.write + e.timeout))
end
`

// httpRate is the commands a second of wrk with 64 connections to as many sessions, over those of as many callers of the SDK. A response
// whose status is not 2xx fails it.
func httpRate(ctx context.Context, b *bench, w *web) (float64, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return 0, missing(errors.New("wrk is missing; install it: apt-get install wrk"))
	}
	base := crowd{name: "exec by the SDK", n: rateRuns}
	var bodies []string
	for i := range wrkConnections {
		thread := fmt.Sprint("wrk-", i)
		overHTTP, bySDK, err := w.execute(ctx, thread)
		if err == nil {
			err = overHTTP(ctx) // it runs, and starts the sandbox
		}
		var s *client.Session
		if err == nil {
			s, err = w.client.Session(ctx, thread)
		}
		if err != nil {
			return 0, err
		}
		body, err := json.Marshal(map[string]string{"session_id": thread + "." + s.ID(), "command": "true"})
		if err != nil {
			return 0, err
		}
		bodies, base.each = append(bodies, "[["+string(body)+"]]"), append(base.each, bySDK)
	}
	dir, err := b.folder()
	if err != nil {
		return 0, err
	}
	script := filepath.Join(dir, "execute.lua")
	if err := os.WriteFile(script, fmt.Appendf(nil, wrkScript, strings.Join(bodies, ", "), w.token), 0o600); err != nil {
		return 0, err
	}
	ratio, ours, sdk, err := compare(ctx, wrkRounds, func(ctx context.Context) (float64, error) {
		return runWrk(exec.CommandContext(ctx, program, "-t", "1", "-c", fmt.Sprint(wrkConnections), "-d", fmt.Sprint(wrkSeconds),
			"--timeout", "30s", "-s", script, w.url))
	}, base.perSecond)
	if err == nil {
		b.note("POST /execute by wrk at %d: %.0f/s, %s: %.0f/s", wrkConnections, ours, base.name, sdk)
	}
	return ratio, err
}

// runWrk returns the responses a second.
func runWrk(cmd *exec.Cmd) (float64, error) {
	out, err := cmd.CombinedOutput()
	_, counts, ok := strings.Cut(string(out), "COUNT ")
	if err != nil || !ok {
		return 0, fmt.Errorf("wrk: %w: %s", err, out)
	}
	var requests, micros, status, sockets float64
	if _, err := fmt.Sscan(counts, &requests, &micros, &status, &sockets); err != nil {
		return 0, fmt.Errorf("wrk: %w: %s", err, out)
	}
	if status+sockets > 0 || requests == 0 || micros == 0 {
		return 0, fmt.Errorf("wrk: of %.0f responses, %.0f are not 2xx, and %.0f connections failed", requests, status, sockets)
	}
	return requests / micros * 1e6, nil
}
