// Package node wires a worker: the processor, its NATS connection, its lease, and the providers of this machine. The programs
// under cmd and package local share it; no other package wires.
//
//	events.Conn ──► Listener ──► processor.Worker ──► sandbox providers (provider.go: one row each)
//	     ▲           Lease ──────┘ (lost: the worker is fenced, and starts again as a new incarnation)
//	     └── records, output, results
package node
