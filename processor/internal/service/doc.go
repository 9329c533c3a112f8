// Package service supervises the services of a worker's threads: processes that run until they are stopped, with a health check.
//
//	Services ──► supervisor, one per service ──► machine (pure: what has happened → what to do)
//	                  │ launch, kill: an ordinary process of the thread
//	                  └ probe: a connection into the sandbox, or a command in it
//
// The processes survive a worker that is killed, as every process does, and the next incarnation of the worker goes on with their
// supervision (ADR 0050).
package service
