// Package plan decides for every path what a sync does. It is pure: base, local and remote trees in, steps out.
//
//	base (last sync) ─┐
//	local (folder) ───┼─► Make ──► []Step ──► applied by package syncer ──► PushedBase, PulledBase: the next base
//	remote (store) ───┘
package plan
