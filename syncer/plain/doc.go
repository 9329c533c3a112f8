// Package plain keeps each file as an object under its own path, for other tools to read. It has no versions.
//
//	packs ──► preconditions ──► state (pending) ──► objects under their paths ──► state (published) ──► packs deleted
//
// A push first stores new content in packs, as the packed layout does, and commits a state that refers to them. Before that
// commit nothing has changed for readers; from then on every reader of the state gets the whole new tree. Only then are the
// files written under their own paths, and a second commit records that. The packs are what an interrupted push is
// finished from: the next push of any writer does so.
package plain
