package main

import (
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 15: limits and network of a sandbox are flags of exec; a server's worker has its own.
func TestLimitsOfASandboxAreFlags(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	run := func(args ...string) outcome {
		return c.run(append(append([]string{"exec"}, jailFlags(t, c)...), args...)...)
	}
	const many = "i=0; while [ $i -lt 80 ]; do sleep 60 & i=$((i+1)); done"
	run("--pids", "24", "--", "sh", "-c", many).check(t).reports("ork")
	run("--pids", "99", "--", "sh", "-c", many).check(t).exits(0)
	run("--memory", "64MiB", "--", "bash", "-c", "head -c 200000000 /dev/zero | tail -c 190000000 | wc -c").check(t).omits("190000000")
	const interfaces = "tail -n +3 /proc/net/dev | wc -l"
	run("--", "sh", "-c", interfaces).check(t).exits(0).prints("1\n")
	run("--network", "host", "--", "test", "-s", "/etc/resolv.conf").check(t).exits(0)
	for _, wrong := range [][]string{{"--network", "some"}, {"--memory", "1"}, {"--memory", "much"}, {"--pids", "1"}, {"--cpus", "-1"}} {
		run(append(wrong, "--", "true")...).wantError(t, schemas.CodeInvalidArgument)
	}
	c.up("--memory", "64MiB", "--pids", "99")
	for _, flag := range [][]string{{"--memory", "1GiB"}, {"--network", "host"}, {"--workspace-files", "9"}, {"-d", "--cpus", "2"}} {
		c.exec(append(flag, "--", "true")...).wantError(t, schemas.CodeInvalidArgument, "template")
	}
	c.good()
}
