// Package userids gives each sandbox that root starts a user of its own on this machine, so that what the kernel counts by user (queued
// signals, message queues, inotify, the memory of pipes) is counted by sandbox.
//
//	run folder ──claim──► Block: 4,096 ids ──Allocate──► a sandbox's processes and files
//
// Claims are files of /run, one for each block in use, which hold the path of the run folder. They outlive the worker, as its sandboxes do.
package userids
