// Package cryptstore encrypts what a store keeps, before it leaves the machine.
//
//	Put: content ──► chunks of 64 KiB ──► magic, key ID, salt | AES-256-GCM ──► store, under an encrypted name
//	Get: range   ◄── authenticated    ◄── the chunks around it              ◄── one request
//
// Each object has a key of its own, derived from the secret, a random salt and the object's name; a chunk's nonce has its number and
// whether it is the last one. So no chunk can be changed, moved, dropped, or put under another name. See ADR 0045.
package cryptstore
