// Command bench measures Sluice's sync against rclone, on the same machine, data and server, in one run.
//
//	data ──► sluice sync push/pull ──┐
//	     └─► rclone sync ────────────┴─► versitygw (a child process)
//
//	BENCH <name> <value> <goal> <ok|short>
//
// A value is a ratio: how many times as fast as rclone, or, for names that end in -cpu or -memory, the share of rclone's.
// Names that end in -peak have the peak memory in MB.
// Wall time, CPU seconds of the client (user and system) and its peak memory are medians of the runs.
// rclone is tuned: --transfers 64 --checkers 64 --fast-list --checksum.
package main
