// Package sandbox says what a sandbox is. It holds the three interfaces that every provider implements and the values
// they exchange; the providers live in folders of their own, and package sandboxtest holds the suite they all pass.
//
//	Provider ──Create──► Sandbox ──Start──► Process ──Read, Ack──► output
//	 local                  │                  │
//	 jail                one supervisor     WriteStdin, Signal, Kill
//	 docker              on a unix socket   Wait ──► Exit (the supervisor's exit record)
//
// Every sandbox has the same supervisor, and it is the one way to run a process: it forks, reaps, kills whole trees and holds
// output until it is acked. Providers differ only in how they start it.
package sandbox
