//go:build race

package embedded

import "time"

// syncInterval is the default of nats-server in race builds: 2.15.2 starts its sync timer before the stream is complete, which the
// race detector reports when a stream takes longer to create than the interval.
const syncInterval = 2 * time.Minute
