// Package state is a workspace as data: its paths, the documented .sandbox-state file, and the checks on both.
//
//	Decode ──► bounds ──► JSON ──► checks ──► State{Nodes, Objects, …} ──► Encode
//	DecodeRoot ──► Root ──Add, Reuse: its segments──► State{Segments, …} ──► Encode: the root; EncodeSegment
//
// It imports package schemas alone and touches neither a disk nor a store. The other packages of the syncer build on it.
package state
