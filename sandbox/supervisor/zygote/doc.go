// Package zygote is the small process that a provider's sandboxes are forked from. It knows nothing of sandboxes: it is sent
// programs of system calls, forks a child into new namespaces for each, and the child runs its program, whose last call is an
// exec.
//
//	worker ── Program, descriptors ──► zygote ── clone ──► child: call, call, call … execveat ──► supervisor
//	   ◄── pid, pidfd ──────────────────┘                    │
//	   ◄── report: the number of the call that failed ───────┘   (end of file: all went well)
//
// A program may leave its end open (More): the child then waits on a socket of its own for further calls, which are sent as they
// have to lie in its memory (Next).
//
// What is done, and in which order, is thus decided in one place, package jail, where it can be read and tested. A fork from
// the worker itself would copy the page tables of a large heap, 50 ms at 1 GiB under CLONE_NEWUSER; the zygote has next to none.
//
// The child of a fork of a Go program has one thread and no working runtime: it may not allocate, grow its stack or be
// scheduled. A list of raw system calls needs none of that, and credentials changed by it hold for the whole child, since that
// one thread is all there is.
//
// The zygote ends when the worker's end of its socket is closed and its children are gone. Like the supervisor, in whose
// binary it lives, it imports neither fmt nor net.
package zygote
