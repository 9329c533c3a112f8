// Package node wires a worker: the processor, the ways in, the lease, and the providers of this machine. It is shared by the
// programs under cmd, which alone wire.
//
//	events.Conn ──► Listener ──► processor.Worker ──► sandbox providers
//	     ▲           Lease ──────┘ (lost: the worker is fenced, and begun anew)
//	     └── records, output, answers
package node
