//go:build race

package embedded

import "time"

// syncInterval is nats-server's own default here: 2.15.2 starts its sync timer before the stream is complete, which the race
// detector reports where making a stream takes longer than a short interval.
const syncInterval = 2 * time.Minute
