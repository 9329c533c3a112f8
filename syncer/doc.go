// Package syncer keeps a folder and a prefix of an object store in sync, by checksum, without losing data on either side.
//
//	folder ──scan──► local ─┐
//	local state ───► base ──┼─► plan ──► apply: content ──► commit: remote state by compare-and-swap ──► local state
//	store ─────────► remote ┘    (pure)     packs, chunks        (lost: again from the read)               and index
//
//	state ◄── plan ◄─────────────── packed ◄── plain ◄── syncer      objectstore ◄── s3store, dirstore, storetest, cryptstore
//	  └────── worktree (folder) ◄──────┘                                 └──────── packed, plain, syncer
//
// The remote state object, .sandbox-state, is the commit point: everything that it names has been stored before it, and
// only a writer that has read the current one replaces it. Clocks decide nothing; they name versions.
//
// A pull writes into a staging folder inside the root, makes it durable with one syncfs, and renames: one rename for
// each new subtree. A file that differs from the last synced state is never deleted and never overwritten, unless the
// caller asked for that with [Config].OnConflict.
//
// A worker calls [Syncer.Pull] into a new sandbox's workspace before its first command, and [Syncer.Push] after the last
// one: the [Report] names the version. Report.Conflicts is filled in even when the operation fails, for an event about
// each path. Every operation locks the folder, and may run again after a crash.
//
// What is committed has passed the checks of the decoder. A damaged state is an error, and [Syncer.Check] finds and repairs damage of
// content. A state names its lineage, so that a store that was rolled back deletes nothing.
//
// The plain layout commits first too: the new content is in packs by then, and the files are written under their own
// paths, for other tools, afterwards. The next operation finishes what a killed push has left.
//
// [objectstore.Store] is the package's only connection to the outside: syncer/s3store and syncer/dirstore implement it, and
// syncer/storetest is the conformance suite of both. syncer/cryptstore encrypts what goes into one.
package syncer
