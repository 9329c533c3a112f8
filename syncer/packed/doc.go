// Package packed keeps content in immutable objects named by their SHA-256: packs of small files, and chunks of large ones.
//
//	files ──Layout.Upload──► packs, chunks ──► ObjectIndex: what a push may rely on
//	state ──Fetch──► ranged reads ──► verified ──► stage
//	half-empty and small packs ──Layout.Prepare──► new packs
//	long state ──Layout.Segment──► objects with segments, and the root ──ReadState──► state
//
// An object is never overwritten. Package syncer deletes those that no state mentions.
package packed
