// Package treetest has folders to sync in tests, and the test of concurrent writers that runs on any store.
//
//	New ──► Tree{Write, Push, Pull, …} ──► Same, List, Differences: what a sync must carry
package treetest
