// Command tiny is the supervisor alone: the program that package bin embeds for Linux.
//
//	sluice ── extracts, starts ──► tiny ──► supervisor.Main
package main

import (
	"os"

	"github.com/sluice-dev/sluice/sandbox/supervisor"
)

func main() { os.Exit(supervisor.Main(os.Args[1:])) }
