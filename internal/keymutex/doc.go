// Package keymutex locks by key: work on the same thread, name or record takes turns, and all other work goes on side by side. A key costs
// memory only while somebody holds it or waits for it.
package keymutex
