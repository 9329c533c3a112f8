// Package sandbox defines what a sandbox is: the three interfaces that every provider implements, and the values they exchange. Each
// provider has its own package, and package sandboxtest is the conformance suite that all of them pass.
//
//	Provider ──Create──► Sandbox ──Start──► Process ──Read, Ack──► output
//	 local                  │                  │
//	 jail                one supervisor     WriteStdin, Signal, Kill
//	 docker              on a unix socket   Wait ──► Exit (the supervisor's exit record)
//
// Every sandbox has the same supervisor, and it is the only way to run a process: it forks, reaps, kills process trees and holds
// output until it is acked. Providers differ only in how they start it.
package sandbox
