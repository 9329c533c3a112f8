// Package embedded runs a NATS server with JetStream in this process. It is separate from package events, so that a program that only
// connects to a server does not link one.
//
//	sluice up ──► Server ──► 127.0.0.1:4222 (token)
//	sluice exec ─► Server ──► in process, no listener
//	                 │
//	                 └─ Dir: the files of the streams
package embedded
