// Package history checks what Sluice promises against what happened: what clients sent and were answered, what the streams hold, and
// what ran, by the files that commands wrote.
//
//	clients' journal ──┐
//	EVT LOG MSG CMD DLQ ─┼──► History ──► Check ──► violations, each with its evidence
//	files of commands ──┘
//
// It shares only the wire types with the code that it judges: it reads the streams by nats.go, and knows the subjects from
// docs/contract.md. [Check] is a function of its argument alone.
package history
