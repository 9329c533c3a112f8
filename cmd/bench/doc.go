// Command bench measures Sluice against a baseline taken in the same run, and prints one line a figure:
//
//	BENCH <name> <value> <goal> <ok|short>
//
// Every value but jail.idle's megabytes is a ratio: machines differ and drift, so that an absolute time would say more of the
// machine than of the code. Sluice and its baseline take turns in short rounds, and the median of the rounds' ratios counts.
// Absolute figures go to standard error, for a person.
//
//	go run ./cmd/bench              everything
//	go run ./cmd/bench -only exec   the figures whose name begins so
//
// A figure for which this machine lacks something is skipped, with the command that brings it:
//
//	BENCH <name> - <goal> skipped: <what is missing>
package main
