// Package parallel runs the items of a list on a few goroutines, each of which keeps its own buffers.
//
//	Run ──► workers ──for i := range indexes──► items, each once, until one fails
package parallel
