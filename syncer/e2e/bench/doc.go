// Command bench measures Sluice's sync against rclone, on the same machine, data and server, in one run.
//
//	data ──► sluice sync push/pull ──┐
//	     └─► rclone sync ────────────┴─► versitygw (a child process)
//
//	BENCH <name> <value> <goal> <ok|short>
//
// A value is a ratio: how many times as fast as rclone, or, for names that end in -cpu or -memory, the share of rclone's.
// Names that end in -peak have the peak memory in MB.
// Those that end in -sent-kB are what Sluice's requests carry, in kB, and those in -requests are how many there are.
// Those that end in -times are Sluice's time over that for a tenth of the files.
// Wall time, CPU seconds of the client (user and system) and its peak memory are medians of the runs.
// rclone is tuned: --transfers 64 --checkers 64 --fast-list --checksum.
package main
