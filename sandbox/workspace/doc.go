// Package workspace measures a sandbox's workspace from the host, checks it against its quota, and changes its owner. The content is
// hostile and may change at any time: no symbolic link is followed, and nothing outside is reached.
//
//	process ended, every 2 s ──► Quota ──► Measure ──► within the quota ──► nothing
//	                                              └──► over the quota ──► running processes are killed, with limit_exceeded
//
// What takes space counts: blocks beyond the end of a file, and, where the host sees the sandbox's processes, files without a name that
// they hold open.
//
// No file system can limit a folder on every machine, so the quota is checked: between two checks only the speed of the disk bounds what is
// written, and a hard limit where the file system has project quotas. A command may start in a workspace over its quota, because a command
// must be able to remove files; it is killed as soon as it makes the workspace larger. After three such commands no more are started.
//
// A walk goes to any depth, and past folders that it may not read. What it leaves out could grow without being seen: a workspace with
// such a part for longer than the time between two checks is treated as one that is over its quota and grows.
package workspace
