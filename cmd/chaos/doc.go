// Command chaos runs a cell of real processes, attacks it by a schedule that the seed decides, and checks what happened by package
// history. `make chaos` runs it; it needs Linux.
//
//	clients (SDK, plain NATS) ──► servers ◄── workers ──► supervisors      each a process
//	schedule ── kills, freezes, outages, stepdowns, full streams, floods ──┘
//	then: lift the faults, wait until nothing runs, history.Read, history.Check, exit 1 with violations
package main
