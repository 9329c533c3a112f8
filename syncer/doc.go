// Package syncer keeps a folder and a prefix of an object store the same, by checksum, and loses nothing on the way.
//
//	folder ──scan──► local ─┐
//	local state ───► base ──┼─► plan ──► apply: content ──► commit: remote state by compare-and-swap ──► local state
//	store ─────────► remote ┘    (pure)     packs, chunks        (lost: from the read again)              and index
//
// The remote state object, .sandbox-state, is the commit point: whatever it names has been stored before it, and it is
// only ever replaced by a writer that has read the one it replaces. Clocks decide nothing; they name versions.
//
// A pull writes into a staging folder inside the root, makes it durable with one syncfs, and renames: one rename for
// each new subtree. A file that differs from the last synced state is never deleted and never overwritten, unless the
// caller asked for that with [OnConflict].
//
// A worker uses it so: [Syncer.Pull] into a new sandbox's workspace before its first command; [Syncer.Push] when the last
// one has ended, whose [Report] names the version; and Report.Conflicts, which is filled in whether or not the operation
// has failed, for an event about each path. All three take the lock on the folder, and may run again after a crash.
//
// In the plain layout a commit comes first too: the new content is in packs by then, and the files are put under their
// own paths, for other tools, after it. Whoever comes next finishes what a killed push has left.
//
// [Store] is all the package knows of the outside: syncer/s3store and syncer/dirstore implement it, and
// syncer/storetest is the suite that both pass.
package syncer
