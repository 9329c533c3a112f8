// Package files is the program that works on the files of a workspace, inside its sandbox. The supervisor starts it as an ordinary
// process of the sandbox, from its own executable: as the sandbox's user, within its limits, in the workspace.
//
//	worker ── arguments, standard input ──► [Main] ── os.Root ──► the workspace
//	       ◄── standard output: content, a tar stream or records
//	       ◄── standard error: the outcome, "ok" or a code, and two more fields
//
// A record, and the outcome, is a sequence of fields that each end with a zero byte; see [RecordFields] and [OutcomeFields]. The reader
// must not trust them: any process of the sandbox can make this one print what it likes.
//
// The package is linked into the supervisor's program, so it imports neither fmt nor encoding nor archive/tar; see package supervisor.
package files
