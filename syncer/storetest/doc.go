// Package storetest is the conformance suite of [objectstore.Store].
//
//	Run(t, factory) ──► an empty store for each test ──► put, get, ranges, conditions, list order, races, deletes
//
// Memory is the simplest store that passes it, for other tests.
package storetest
