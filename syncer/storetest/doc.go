// Package storetest is the suite that every [syncer.Store] passes.
//
//	Run(t, factory) ──► an empty store for each test ──► put, get, ranges, conditions, order of lists, races, deletes
//
// Memory is the simplest store that passes it, for tests that need one and no more.
package storetest
