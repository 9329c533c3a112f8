// Package conversation answers the messages of a thread one after the other, with hooks around each answer.
//
//	LineUp ──► Await: the message before is done ──► hooks of phase message ──► the agent runs ──► Finish: hooks of stream_finish ──► Done
//
// Package run runs the agent; this package knows of a run only its output and its result.
package conversation
