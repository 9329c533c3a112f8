// Package jail isolates sandboxes with Linux kernel features alone: namespaces, a read-only root, no capabilities, a seccomp filter,
// cgroups. It needs no daemon, no image and no root. A jail runs its first command within a few milliseconds.
//
//	Provider.Create
//	   │ reserves resources: cgroup, user id, socket
//	   │
//	   ├── setup program ──► zygote ── clone ──► process in new namespaces: builds the root, pivots, waits
//	   ├── final program ──────────────────────► the same process: joins the cgroup, mounts /tmp and the workspace,
//	   │                                         drops all rights, installs the filter, execs
//	   └── unix socket ◄──────── frames ───────► supervisor, pid 1 of the jail
//	                                                └──► processes: /workspace read-write, /tmp bounded, no network
//
// The terms, one for each type:
//
//	jail           a sandbox of this provider
//	resources      what a jail holds on the host, released when it has ended
//	jailConfig     what the programs need to know of a jail
//	program        a list of system calls that a forked process runs; see package zygote
//	zygoteClient   the worker's end of its zygote
//	pendingJail    a process that ran the setup program and waits for the final one
//	prestarted     pending jails that were started before their sandbox was requested (docs/adr/0015)
//
// Isolation: the mount namespace shows an allow-list of the host (/usr, what points into it, a few files of /etc) or a root file system
// given in the Spec. The pid namespace ends with its supervisor. The network namespace has its own loopback and no other interface,
// and abstract sockets belong to it. The user id owns nothing else on the machine. The filter blocks system calls that commands do
// not need.
//
// As root, every jail has its own user id, and its workspace is an id-mapped mount: on the host the files belong to the worker.
// As an ordinary user, every jail has a user namespace in which the worker's user is sandboxuser. Without a delegated cgroup, setrlimit
// enforces the limits instead: see Limits in package sandbox.
package jail
