// Package hooks runs a template's hooks when a sandbox starts cold, a message arrives, an answer is complete, and a session ends.
//
//	Chains.Run(template, data) ─► the phase's hooks, in order:
//	     │                          built-in · Go · command in the sandbox · NATS request · HTTP POST
//	     ├─► one loop for every phase; each hook has a timeout and a duration, and its panics are caught
//	     ├─► events hook.started, hook.finished, hook.failed   (Config.Record)
//	     └─► a critical failure ends the phase; other failures are reported, and a failed push is retried (Chains.Retry)
//
// [schemas.HookData.Occasion] identifies one run of a phase: a message's process, or a session's id and epoch. A hook that
// succeeded does not run again for the same occasion on the same worker. After a restart of the worker it may, so hooks must be
// idempotent by Occasion.
package hooks
