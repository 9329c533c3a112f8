// Package dirstore is an [objectstore.Store] in a folder: on a separate disk, a network mount or a backup medium.
//
//	Put ──► temp name ──write──► fsync ──► rename ──► folder fsync
//	          │
//	          └─ with a condition: under a lock on the folder, so that compare-and-swap is atomic between processes
//
// A key is a path below the folder. Nothing outside the folder is ever read or written: access goes
// through [os.Root].
package dirstore
