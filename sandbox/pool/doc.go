// Package pool keeps sandboxes ready, so that a session gets one in the time of a rename instead of that of a container's
// start. It is a sandbox.Provider around another one, whose sandboxes can be given to a session late ([Rebinder]).
//
//	          Run ──Create──► inner Provider ──► member, in Dir/<member> ──► ready
//	                                                                           │ claim
//	Create(Spec) ── Dir/<member> becomes Spec.Workspace ── Rebind(Spec) ◄──────┘
//	     └── none ready: Create(Spec) of the inner Provider, a miss
//
// A folder that is mounted into a sandbox stays mounted when it is renamed. So a member is made with an empty folder of its
// own; when it is claimed, what the session's workspace holds is moved into that folder, and the folder takes the
// workspace's name. No mount is made, nothing is copied, and root is not needed: docs/adr/0008-warm-pool.md.
//
// A member is used once: it belongs to its session until it ends, and is never given back.
package pool
