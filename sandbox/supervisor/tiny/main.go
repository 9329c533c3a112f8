// Command tiny is the supervisor alone: the program that package bin embeds for Linux. As "tiny zygote" it is the process
// that jails are forked from, which then run it as their supervisor.
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
