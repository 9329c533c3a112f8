// Package hooks runs what a template wants done when a sandbox starts cold, a message comes, an answer is complete, and a
// session ends.
//
//	Chains.Run(template, data) ─► the phase's hooks, in order:
//	     │                          built-in · Go · command in the sandbox · NATS request · HTTP POST
//	     ├─► one loop for every phase: each hook timed, within its own deadline, its panics caught
//	     ├─► hook.started, hook.finished, hook.failed   (Config.Record)
//	     └─► a critical failure ends the occasion; another is told, and a push that failed is tried again (Chains.Retry)
//
// An occasion is a message's process, or a session's id and epoch. What ran well on an occasion does not run on it again while
// this worker lives; after a restart the hooks themselves see to it, by [schemas.HookData.Occasion].
package hooks
