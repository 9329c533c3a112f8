// Package diskspace measures how much room a file system has, and how much of it is a reserve that no new work takes. It imports
// nothing of Sluice.
//
//	free ≥ reserve      ──► everything runs
//	free < reserve      ──► no process starts, and no file is written by request
//	free < reserve / 2  ──► processes of a workspace that grows are killed
package diskspace
