// Package schemas is the wire contract: the Go types of all commands, events, results and errors, and their validation. It
// imports only the standard library, so that every package may import it.
//
//	Command ──► Event(process.accepted) ──► Event(process.started) ──► Event(process.exited: Result)
//	   │                                           │
//	   └─ refused: Event(process.rejected: Error)  └─ Chunk, Chunk, … (stream LOG: raw bytes and headers)
//
// Commands must not have unknown fields: a misspelled limit must not be ignored. Events and results may have them, so that an
// old reader can follow a new worker.
//
// The folder json holds JSON Schemas generated from these types (go generate), asyncapi.yaml lists every subject, and the
// folder examples has a golden file for each type.
package schemas

//go:generate go run ./internal/schemagen
