// Package recovery goes on with what an earlier incarnation of the worker left running, and reports as lost what no worker runs any
// more.
//
//	Reattach: sandboxes of the providers ──► session still this worker's ──► processes without an end ──► Resume
//	Recover:  processes without an end that do not run here ──► TakeUp, when this program knows that they never started; else lost
//	Reap:     the same for workers whose lease has lapsed
package recovery
