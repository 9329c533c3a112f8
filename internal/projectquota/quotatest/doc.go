// Quotatest is the first process of the machine in which package projectquota is tested: a kernel with project quotas, as a program. It mounts a
// disk of each file system, runs the cases on each, prints a line for every result, and switches the machine off:
//
//	ext4|xfs prjquota|- CASE RESULT
//
// `quotatest boot KERNEL ARGUMENT…` starts that machine on any host.
package main
