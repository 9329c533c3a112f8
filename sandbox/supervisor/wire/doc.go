// Package wire is the language a supervisor and its host speak over their unix socket: frames, little-endian, each with
// its length in front. Both ends use this package, so that there is one place to change the protocol.
//
//	┌────────────┬────────┬─────────────────────────────┐
//	│ size  u32  │ type u8│ payload, size-1 bytes       │   at most MaxFrame bytes after the size
//	└────────────┴────────┴─────────────────────────────┘
//
//	host ──► supervisor   Hello Spawn Ack Stdin StdinEOF Signal Kill List Resume Release Terminate
//	supervisor ──► host   Hello Spawned Failed Output StdinTaken Signaled Exit Listed
//
// A string or byte list is its length (u32) and its bytes; a list is its count (u32) and its members. A handle is a
// number the host gives to a process at Spawn and that names it from then on, over reconnections too.
//
// The supervisor's binary is kept tiny, so this package imports neither fmt nor encoding nor net. Every decoder takes
// whatever bytes it is given: what does not parse is an error, never a panic, and what it allocates is bounded by a small
// multiple of the input.
package wire
