// Package schemas is the contract: the Go types of every command, event, result and error that travels, and the checks
// they must pass. It imports the standard library alone, so that anything may import it.
//
//	Command ──► Event(process.accepted) ──► Event(process.started) ──► Event(process.exited: Result)
//	   │                                           │
//	   └─ refused: Event(process.rejected: Error)  └─ Chunk, Chunk, … (the LOG stream: raw bytes and headers)
//
// Unknown fields are refused in commands, since a misspelt limit must not be ignored, and tolerated in events and
// results, so that an old reader can follow a new worker.
//
// The JSON Schemas in this folder's json directory are generated from these types (go generate), asyncapi.yaml names
// every subject they travel on, and the examples directory holds one golden file for each.
package schemas

//go:generate go run ./internal/schemagen
