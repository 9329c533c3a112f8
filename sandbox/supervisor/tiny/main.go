// Command tiny is the supervisor's program, which package bin embeds for Linux. As "tiny zygote" it is the process that jails are
// forked from; each child then runs it as its supervisor.
//
//	sluice ── extracts, starts ──► tiny ──► supervisor.Main, zygote.Main
package main

import (
	"os"

	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "zygote" {
		os.Exit(zygote.Main())
	}
	os.Exit(supervisor.Main(os.Args[1:]))
}
