//go:build !race

package embedded

import "time"

// syncInterval was measured: a third of the latency of a sync per write, for the loss of at most this time at a power failure.
const syncInterval = 100 * time.Millisecond
