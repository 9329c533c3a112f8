// Package zygote is the small process that a provider forks its sandboxes from. It knows nothing of sandboxes: for each program of
// system calls that it receives, it forks a child into new namespaces. The child runs the program, whose last call is an exec.
//
//	worker ── Program, descriptors ──► zygote ── clone ──► child: call, call, call … execveat ──► supervisor
//	   ◄── pid, pidfd ──────────────────┘                    │
//	   ◄── report: the number of the call that failed ───────┘   (end of file: success)
//
// A program may end in AwaitCalls: the child then waits on a socket for more calls. Continuation encodes them as they must lie in the
// child's memory.
//
// Package jail alone decides which calls are made, and in which order; it can be read and tested there. A fork from the worker
// would copy the page tables of a large heap, 50 ms at 1 GiB under CLONE_NEWUSER; the zygote has almost none.
//
// The child of a forked Go program has one thread and no working runtime: it must not allocate, grow its stack or be
// scheduled. A list of raw system calls needs none of that. Credentials that it changes apply to the whole child, which has only that
// thread.
//
// The zygote ends when the worker's end of its socket is closed and its children have ended. It is part of the supervisor's binary,
// so it imports neither fmt nor net.
package zygote
