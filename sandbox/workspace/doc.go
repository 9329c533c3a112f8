// Package workspace looks after a sandbox's workspace as the host sees it: how much it holds, whether that is more than it may, and
// whose its files are. What is in there is hostile, and may change while it is looked at: no link is followed, and nothing
// outside is reached.
//
//	process ended, every 2 s ──► Guard ──► Measure ──► within limits ──► nothing
//	                                              └──► past a limit ──► what runs is ended, and its end says so
//
// File systems have no limit for a folder that a sandbox could be given on every machine, so that limits are looked at rather than
// enforced: what can be written between two looks is bounded by the disk's speed alone. A command may begin while the workspace
// holds too much, since somebody has to remove files; it is ended as soon as it makes the workspace larger. After three that did,
// none is started any more.
package workspace
