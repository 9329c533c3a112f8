// Package seal encrypts commands that wait in NATS, so that only the workers of their cell can read them: HPKE (RFC 9180) in base mode, with
// DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM. Workers share a file of keys; callers have the public half of the first one.
//
//	caller: Seal(public key, place, command) ──► CMD ──► worker: Keys.Open(id, place, sealed) ──► command
//
// The place is the cell, tenant, thread and operation: a sealed command is none of another thread. It imports schemas only.
package seal
