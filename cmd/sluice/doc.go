// Command sluice is the one binary: the command line, and everything it can start. It alone reads the environment, handles
// signals and wires the parts together.
//
//	exec, logs, events, process ──► reach ──┬─ --nats URL:            a server of yours
//	                                        ├─ data folder, sluice up: its address and token
//	                                        └─ nobody there:          host (server and worker in this process)
//	up ─────────────────────────► host, with a listener on loopback
//	worker ─────────────────────► node, against a server of yours
package main
