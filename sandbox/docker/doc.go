// Package docker is the provider whose sandboxes are containers. It is the only package that talks to a Docker engine.
//
//	Provider ──Create──► engine: create, start            container, no network, read-only root, not root
//	    │                                                 ┌────────────────────────────────────────────┐
//	    │  RunDir/docker/supervisor-<hash> ── ro bind ──► │ /sluice/supervisor, pid 1 ──► processes    │
//	    │  RunDir/docker/<hash>.ask ───────── ro bind ──► │ /sluice/socket                             │
//	    │  Spec.Workspace ─────────────────── bind ─────► │ /workspace                                 │
//	    │                                                 └──────┬─────────────────────────────────────┘
//	    └── RunDir/docker/<hash>.sock ◄── listens on ───────────┘
//
// The supervisor is mounted into the container and is its entrypoint, so any image works, also an empty one. The host makes both
// sockets. The supervisor connects to the one in the container, receives the listening descriptor of the other, and the first one is
// closed. The second one is in a folder that no container sees, so the host never connects to something that a process put in a
// socket's place.
//
// The package brings its own seccomp profile, because an engine's default is as old as the engine. The processes have the
// supervisor's user, but cannot read, trace or signal it; so `docker stop` kills it at once.
//
// A container is removed when its supervisor has ended, for any reason. [Provider.Run] removes the containers that a dead worker left.
package docker
