// Command sluice is the one binary: the command line, and every part that it can start. Only this package reads the environment,
// handles signals and wires the parts together.
//
//	exec, message ─► foreground ─┐              ┌─ --nats URL:               that server
//	logs, ps, session … ─► with ─┴─► connect ───┼─ sluice up is running:     its URL and token, from the data folder
//	                                            └─ no server on the folder:  host: a server in this process, and a worker unless
//	                                                                         the command only reads
//	up ─────┐
//	worker ─┴► setUp ─► host (up: a server on loopback and a node), or node alone (worker: against --nats)
//	reload ─► the control socket of the process that holds the folder
//	sync, doctor, version, template check: need no server
package main
