// Package statetest makes states for tests: random trees, and states of a hostile writer.
//
//	Tree(rapid) ──► nodes that share paths        Hostile() ──► JSON that state.Decode must refuse
package statetest
