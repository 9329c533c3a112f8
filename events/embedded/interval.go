//go:build !race

package embedded

import "time"

// syncInterval was measured against syncing each write: a third of its latency at the price of at most this much.
const syncInterval = 100 * time.Millisecond
