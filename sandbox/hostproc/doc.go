// Package hostproc starts supervisor processes on this host, and finds them again after the worker has restarted.
//
//	Start ──► process ──► RefOf(pid) ──► Ref, in the registry's file
//	                                      │ next worker
//	                      Kill, Gone ◄── Find
//
// A pid alone does not identify a process: the kernel reuses it. On Linux a Ref also holds the start time, and everything after
// Find uses a pidfd.
package hostproc
