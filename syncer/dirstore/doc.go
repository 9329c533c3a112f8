// Package dirstore is a [syncer.Store] in a folder: a disk of its own, a network mount, a backup medium.
//
//	Put ──► temp name ──write──► fsync ──► rename ──► folder fsync
//	          │
//	          └─ with a condition: under a lock on the folder, so that compare and swap is one step between processes
//
// A key is a path below the folder. Nothing outside the folder is ever read or written, whatever the key: access goes
// through [os.Root].
package dirstore
