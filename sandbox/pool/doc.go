// Package pool keeps sandboxes ready, so that a session waits for a rename instead of the start of a container. It is a
// sandbox.Provider around another one whose sandboxes can be bound to a session after their creation ([Rebinder]).
//
//	          Run ──Create──► inner Provider ──► member, in Dir/<member> ──► ready
//	                                                                           │ claim
//	Create(Spec) ── Dir/<member> becomes Spec.Workspace ── Rebind(Spec) ◄──────┘
//	     └── none ready: Create(Spec) of the inner Provider, a miss
//
// A folder that is mounted into a sandbox stays mounted when it is renamed. So a member is created with its own, empty folder.
// A claim moves the content of the session's workspace into that folder, and renames the folder to the workspace. It makes no
// mount, copies nothing, and does not need root: docs/adr/0008-warm-pool.md.
//
// A member is used once: it belongs to its session until it ends, and never returns to the pool.
package pool
