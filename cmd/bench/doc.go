// Command bench measures Sluice against a baseline of the same run, and prints one line for each figure:
//
//	BENCH <name> <value> <goal> <ok|short>
//
// Values are ratios, except those of jail.idle, http.uploads.rss, sse.1000, session.create, session.parked_bytes and queue.restart.p99:
// machines differ and drift, and an absolute time depends more on the machine than on the code. Sluice and its baseline take turns in short rounds, and the value is the
// median of the rounds' ratios. Absolute times go to standard error.
//
// A figure is a row of the table in figure.go. To add one, write its function and add the row.
//
//	go run ./cmd/bench              all figures
//	go run ./cmd/bench -only exec   the figures whose name starts with exec
//
// A figure is skipped where this machine lacks what it needs, with the command that installs it:
//
//	BENCH <name> - <goal> skipped: <what is missing>
package main
