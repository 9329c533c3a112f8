// Command sluice is the one binary: the command line, and every part that it can start. Only this package reads the environment,
// handles signals and wires the parts together.
//
//	exec, message ─► foreground ─┐              ┌─ --nats URL:               that server
//	logs, ps, session … ─► with ─┴─► connect ───┼─ sluice up is running:     its URL and token, from the data folder
//	                                            └─ no server on the folder:  host (server and worker in this process)
//	up ─────┐
//	worker ─┴► setUp ─► host (up: a server on loopback and a node), or node alone (worker: against --nats)
//	sync, doctor, version, template check: need no server
package main
