// Package jail is the provider that isolates by the kernel alone: namespaces, a read-only root, no capabilities, a system call
// filter, cgroups. It needs no daemon, no image and no root, and a jail runs its first command in a few milliseconds.
//
//	Provider ──Create──► program of system calls ──► zygote ── clone ──► child
//	   │  uid, cgroup, socket                                              │ joins the cgroup, builds a root of binds, pivots,
//	   │                                                                   │ drops everything, filters, execs
//	   └── unix socket ◄──── frames ────► supervisor, pid 1 ◄──────────────┘
//	                                          └──► processes: /workspace read-write, /tmp bounded, no network
//
// What holds whom: the mount namespace shows an allow-list of the host (/usr, what points into it, a few files of /etc) or a
// folder given as root; the pid namespace ends with its supervisor; the network namespace has a loopback of its own and nothing
// else, and with it abstract sockets are the jail's own; the user is one that owns nothing else on the machine. The filter keeps
// from the kernel what a command has no use for.
//
// As root every jail has a user id of its own, and its workspace is mounted with ids mapped, so that on the host its files
// belong to the worker. As an ordinary user everything is done in a user namespace in which the worker's own user is
// sandboxuser. Without a delegated cgroup the limits are then those of setrlimit: see Limits.
package jail
