// Package docker is the provider whose sandboxes are containers. It is the only package that talks to a Docker engine.
//
//	Provider ──Create──► engine: create, start            container, no network, read-only root, not root
//	    │                                                 ┌────────────────────────────────────────────┐
//	    │  RunDir/docker/supervisor-<hash> ── ro bind ──► │ /sluice/supervisor, pid 1 ──► processes    │
//	    │  RunDir/docker/<hash>.ask ───────── ro bind ──► │ /sluice/socket                             │
//	    │  Spec.Workspace ─────────────────── rw bind ──► │ /workspace                                 │
//	    │                                                 └──────┬─────────────────────────────────────┘
//	    └── RunDir/docker/<hash>.sock ◄── listens on ───────────┘
//
// The supervisor is mounted into the container and is its entrypoint, so that any image will do, one with nothing in it too.
// Both sockets are made by the host: the supervisor connects to the one it sees, is handed the other's listening descriptor,
// and the first is closed. What the host connects to afterwards lies in a folder that no container sees, so that nothing a
// process could put in a socket's place is ever followed.
//
// The filter of system calls is this package's own, since an engine's is as old as the engine. The supervisor cannot be read, traced or
// signalled by the processes beside it, though all are one user's; so `docker stop` kills it at once.
//
// A container is removed when its supervisor has gone, whatever the cause. [Provider.Run] removes those that a worker left
// behind when it died.
package docker
