package events

import (
	"cmp"
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// minStreamBytes is the least size that a stream is scaled down to, and minStoreBytes that of all streams whose size is not set.
const (
	minStreamBytes = 1 << 20
	minStoreBytes  = 32 << 20
)

// sizes are the byte bounds of the streams.
func (t *Topology) sizes() []*int64 {
	return []*int64{&t.CommandBytes, &t.EventBytes, &t.LogBytes, &t.MessageBytes, &t.DeadBytes}
}

// sums returns the sum of the sizes that are set, and that of the defaults of those that are not.
func (t Topology) sums() (set, unset int64) {
	full := t.WithDefaults()
	for i, size := range full.sizes() {
		if *t.sizes()[i] != 0 {
			set += *size
		} else {
			unset += *size
		}
	}
	return set, unset
}

// scaled returns the topology with defaults, in which sizes that are not set have this share of theirs.
func (t Topology) scaled(share float64) Topology {
	full := t.WithDefaults()
	for i, size := range t.sizes() {
		if *size == 0 {
			*size = max(int64(float64(*full.sizes()[i])*share), minStreamBytes)
		}
	}
	return t.WithDefaults() // LOG's own bounds follow its size
}

// ensureWithin creates or updates the streams and buckets. A size that the topology leaves open is that of the stream, if it exists.
// Else it fits into the account's limit and the topology's room, and, when no size is set, into half as much each time that the server has no room.
func ensureWithin(ctx context.Context, c *Conn, t Topology, account *jetstream.AccountInfo) error {
	given, _ := t.sums()
	fresh := account.Streams == 0
	if !fresh {
		if err := adoptSizes(ctx, c, &t); err != nil {
			return err
		}
	}
	set, unset := t.sums()
	share, halved := 1.0, false
	limit := storeLimit(account, t.WithDefaults().Replicas)
	if t.Room > 0 && (limit == 0 || t.Room < limit) {
		limit = t.Room
	}
	if limit > 0 && unset > 0 {
		room := max(limit-limit/16-set, minStoreBytes) // a sixteenth is for the buckets
		share = min(1, float64(room)/float64(unset))
	}
	for ; ; fresh, share, halved = false, share/2, true {
		sized := t.scaled(share)
		err := ensureTopology(ctx, c, sized, fresh)
		if errors.Is(err, schemas.ErrLimitExceeded) && halved { // the streams of the larger try took the room until this one shrank them
			err = ensureTopology(ctx, c, sized, false)
		}
		if errors.Is(err, schemas.ErrLimitExceeded) && given == 0 && share*float64(unset) >= 2*minStoreBytes {
			continue
		}
		if err == nil {
			if sized != c.topology { // a repeated call finds it read by others
				c.topology = sized
			}
			c.budget.set(sized)
		}
		return err
	}
}

// adoptSizes sets the sizes that are not set to those of the streams that exist: the workers of a cell may have different flags.
func adoptSizes(ctx context.Context, c *Conn, t *Topology) error {
	given := t.LogBytes
	var ofCMD, ofEVT, ofLOG map[string]string // metadata
	group, ctx := errgroup.WithContext(ctx)
	for i, name := range []string{c.names.cmd, c.names.evt, c.names.log, c.names.msg, c.names.dlq} {
		size := t.sizes()[i]
		if *size != 0 && name != c.names.log && name != c.names.cmd && name != c.names.evt {
			continue
		}
		group.Go(func() error {
			s, err := c.js.Stream(ctx, name)
			switch {
			case errors.Is(err, jetstream.ErrStreamNotFound):
				return nil
			case err != nil:
				return wrap(err, "read the size of stream "+name)
			}
			switch name {
			case c.names.cmd:
				ofCMD = s.CachedInfo().Config.Metadata
			case c.names.evt:
				ofEVT = s.CachedInfo().Config.Metadata
			case c.names.log:
				ofLOG = s.CachedInfo().Config.Metadata
			}
			if *size == 0 {
				*size = max(s.CachedInfo().Config.MaxBytes, 0)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	adopt := func(size *int64, noted string) { *size = cmp.Or(*size, int64(parseUint(noted))) }
	adopt(&t.MessageBytes, ofCMD[metaMessageBytes]) // it may not be created yet
	adopt(&t.DeadBytes, ofCMD[metaDeadBytes])
	adopt(&t.EventTenantBytes, ofEVT[metaTenantBytes])
	if given == 0 { // else its bounds follow its size
		adopt(&t.LogProcessBytes, ofLOG[metaProcessBytes])
		adopt(&t.LogTenantBytes, ofLOG[metaTenantBytes])
	}
	return nil
}

// storeLimit is how many bytes the streams of an account may take with this many replicas; 0 for no limit.
func storeLimit(account *jetstream.AccountInfo, replicas int) int64 {
	if tier, ok := account.Tiers["R"+string(rune('0'+replicas))]; ok {
		return max(tier.Limits.MaxStore, 0)
	}
	return max(account.Limits.MaxStore, 0) / int64(replicas)
}

// Topology returns how Ensure has set up the cell.
func (w *Worker) Topology() Topology { return w.conn.topology }
