// Command tiny is the supervisor's program, which package bin embeds for Linux. As "tiny zygote" it is the process that jails are
// forked from; each child then runs it as its supervisor.
//
//	sluice ── extracts, starts ──► tiny ──► supervisor.Main, zygote.Main
package main
