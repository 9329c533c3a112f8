// Package embedded runs a NATS server with JetStream inside this process. It is apart from package events, so that whoever only
// speaks to a server does not carry one.
//
//	sluice up ──► Server ──► 127.0.0.1:4222 (token)
//	sluice exec ─► Server ──► in process, no listener
//	                 │
//	                 └─ Dir: the streams' files
package embedded
