// Package projectquota bounds what folders hold, by the project quotas of ext4 and XFS: the kernel counts blocks and inodes as they are
// allocated, open files without a name and blocks beyond the end of a file included. Each folder becomes a project, whose id the file system
// stores with it, so that nothing else has to be recorded.
//
//	Set ──► id unused ──► limits of the id ──► id of the folder, inherited by what is made in it
//
// It does nothing for a process that is not root, before Linux 5.14, and on a file system without project quotas or with quotas that are only
// counted. See docs/adr/0067.
package projectquota
