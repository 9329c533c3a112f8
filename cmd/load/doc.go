// Command load puts the documented load on `sluice up` over HTTP, and prints the p50 and p99 of each operation:
//
//	100 sessions at once
//	1,000 commands a minute over 50 sessions
//	100 file operations at once: uploads, lists and downloads, again and again
//	churn: sessions that are created, used and cleaned up, four at a time
//
// The last three run together. It starts a server of its own with an empty data folder, or uses a gateway that runs. Any response that is
// not the documented one is an error, and so is a command that was not sent in time; with an error it exits with 1.
//
//	go run ./cmd/load -sluice bin/sluice -duration 2m
//	LOAD_TOKEN=TOKEN go run ./cmd/load -url http://127.0.0.1:8080
package main
