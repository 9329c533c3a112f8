// Package wire is the protocol between a supervisor and its host, over a unix socket: little-endian frames, each with its
// length in front. Both ends use this package.
//
//	┌────────────┬────────┬─────────────────────────────┐
//	│ size  u32  │ type u8│ payload, size-1 bytes       │   at most MaxFrame bytes after the size
//	└────────────┴────────┴─────────────────────────────┘
//
//	host ──► supervisor   Hello Spawn Ack Stdin StdinEOF Signal Kill List Resume Release Terminate Resize Connect
//	supervisor ──► host   Hello Spawned Failed Output StdinTaken Signaled Exit Listed Connected
//
// A string or byte list is its length (u32) and its bytes; a list is its count (u32) and its members. A handle is a
// number that the host gives to a process in Spawn. It names the process on every later connection too.
//
// # Fields
//
// Each message lists its fields once, in its method fields. A codec runs that list to encode, decode or measure the message.
// Output alone has fixed offsets: every piece of output encodes and decodes one.
//
// # Versions
//
// A supervisor outlives its worker, so an upgraded worker must reattach supervisors of the version before. Each end sends its
// [Version] in Hello and accepts every version from [MinVersion] on, newer ones too. These rules keep the versions compatible:
//
//   - Fields are only appended to a message. A field is never moved, removed or given a new meaning.
//   - A decoder reads the fields that a shorter payload lacks as zero, and ignores the bytes after the last field it knows. So a new
//     field must mean "as before" when it is zero. A payload that ends inside a field, or inside a list, is an error.
//   - The members of a list cannot grow. New values of the members become a new list at the end of the message.
//   - Stdin and Output end with data that has no length. They cannot grow.
//   - An end sends a new frame type, or a new value of Cause, Reason or SignalResult, only to a peer whose version has it.
//
// Increase Version when a message, a field or a value is added; keep the golden frames of the version before in testdata.
// Increase MinVersion only to drop support for running supervisors: a worker that meets one ends its sandbox.
//
// # Limits
//
// The supervisor's binary is kept small, so this package imports neither fmt nor encoding nor net nor reflect. A decoder returns
// an error for a malformed payload. It never panics, and it allocates at most a small multiple of the input.
package wire
