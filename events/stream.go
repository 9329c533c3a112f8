package events

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// Topology is how the streams of a cell are set up. The zero value is ready for one machine.
type Topology struct {
	// Partitions is how many parts CMD is split into; commands of one thread stay in one part, in order. Default 4; 16
	// suits a fleet. Changing it remaps threads: drain CMD first.
	Partitions int
	// Replicas of each stream and bucket, 1 to 5. Default 1; a cluster wants 3.
	Replicas int
	// CommandAge, EventAge and LogAge say how long each stream keeps what it has. Default 24, 72 and 24 hours.
	CommandAge, EventAge, LogAge time.Duration
	// MessageAge says how long MSG keeps a conversation's messages. Default 0: for ever.
	MessageAge time.Duration
	// CommandBytes, EventBytes, LogBytes, MessageBytes and DeadBytes bound each stream. Default 256 MiB, 1 GiB, 8 GiB, 1 GiB,
	// 64 MiB. CMD refuses more when full, which is the back-pressure; the others drop their oldest.
	CommandBytes, EventBytes, LogBytes, MessageBytes, DeadBytes int64
	// LeaseTTL is how long a worker that no longer renews its lease counts as alive. Default 10 s.
	LeaseTTL time.Duration
}

func (t Topology) withDefaults() Topology {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	defAge := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if t.Partitions == 0 {
		t.Partitions = 4
	}
	if t.Replicas == 0 {
		t.Replicas = 1
	}
	defAge(&t.CommandAge, 24*time.Hour)
	defAge(&t.EventAge, 72*time.Hour)
	defAge(&t.LogAge, 24*time.Hour)
	defAge(&t.LeaseTTL, 10*time.Second)
	def(&t.CommandBytes, 256<<20)
	def(&t.EventBytes, 1<<30)
	def(&t.LogBytes, 8<<30)
	def(&t.MessageBytes, 1<<30)
	def(&t.DeadBytes, 64<<20)
	return t
}

// StoreBytes is the sum of what the streams may grow to, in bytes.
func (t Topology) StoreBytes() int64 {
	t = t.withDefaults()
	return t.CommandBytes + t.EventBytes + t.LogBytes + t.MessageBytes + t.DeadBytes
}

// Fit returns the topology with its byte bounds scaled down, all alike, to fit into this many bytes of disk. A sixteenth is
// left for the buckets: a worker whose lease finds no room is taken for dead.
func (t Topology) Fit(bytes int64) Topology {
	t = t.withDefaults()
	sum := t.StoreBytes()
	bytes -= bytes / 16
	if bytes >= sum {
		return t
	}
	for _, v := range []*int64{&t.CommandBytes, &t.EventBytes, &t.LogBytes, &t.MessageBytes, &t.DeadBytes} {
		*v = max(int64(float64(*v)*float64(bytes)/float64(sum)), 1<<20)
	}
	return t
}

// names are the streams and buckets of a cell.
type names struct {
	cmd, evt, log, msg, dlq string
	state, leases           string
}

func namesOf(cell string) names {
	p := "sluice-" + cell + "-"
	return names{
		cmd: p + "CMD", evt: p + "EVT", log: p + "LOG", msg: p + "MSG", dlq: p + "DLQ",
		state: p + "state", leases: p + "leases",
	}
}

// Ensure creates the cell's streams and buckets, or brings those that are there up to date. It may be run by any number of
// workers at once. Errors: unavailable when JetStream cannot be reached or is not enabled, internal when a stream
// is there with a configuration that cannot be changed into this one.
func (c *Conn) Ensure(ctx context.Context, t Topology) error {
	t = t.withDefaults()
	c.partitions = t.Partitions
	c.leaseTTL = t.LeaseTTL
	c.topology = t
	// Whether anything is there yet only says what to try first.
	account, err := c.js.AccountInfo(ctx)
	if err != nil {
		return wrap(err, "ask about JetStream")
	}
	fresh := account.Streams == 0
	// All at once: each costs the server a dozen file operations, which do not wait for each other.
	group, ctx := errgroup.WithContext(ctx)
	for _, cfg := range c.streamConfigs(t) {
		group.Go(func() error {
			if err := c.ensureStream(ctx, cfg, fresh); err != nil || cfg.Name != c.names.cmd {
				return wrap(err, "create stream "+cfg.Name)
			}
			for p := range c.partitions {
				group.Go(func() error { return c.ensureDispatcher(ctx, p) })
			}
			return nil
		})
	}
	for _, cfg := range c.bucketConfigs(t) {
		group.Go(func() error { return wrap(c.ensureBucket(ctx, cfg, fresh), "create bucket "+cfg.Bucket) })
	}
	return group.Wait()
}

// ensureDispatcher creates the consumer of one partition of CMD, and keeps it for the inlet that will read it.
func (c *Conn) ensureDispatcher(ctx context.Context, partition int) error {
	cons, err := c.js.CreateOrUpdateConsumer(ctx, c.names.cmd, c.dispatcherConfig(partition))
	if err != nil {
		return wrap(err, "create the consumer of command partition "+strconv.Itoa(partition))
	}
	c.bucketMu.Lock()
	defer c.bucketMu.Unlock()
	c.dispatchers[partition] = cons
	return nil
}

// dispatcher is the consumer of one partition of CMD: the one that Ensure made, the first time, else one made anew.
func (c *Conn) dispatcher(ctx context.Context, partition int) (jetstream.Consumer, error) {
	c.bucketMu.Lock()
	cons := c.dispatchers[partition]
	delete(c.dispatchers, partition)
	c.bucketMu.Unlock()
	if cons != nil {
		return cons, nil
	}
	return c.js.CreateOrUpdateConsumer(ctx, c.names.cmd, c.dispatcherConfig(partition))
}

// dispatcherConfig keeps the order of a thread's commands: one unacked command at a time, and one pinned worker.
func (c *Conn) dispatcherConfig(partition int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       dispatchName + strconv.Itoa(partition),
		FilterSubject: c.Subjects.PartitionCommands(partition),
		AckPolicy:     jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 1, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{pinGroup}, PinnedTTL: pinTTL,
	}
}

func (c *Conn) streamConfigs(t Topology) []jetstream.StreamConfig {
	evtFrom, evtTo := c.Subjects.republish("evt", "feed")
	logFrom, logTo := c.Subjects.republish("log", "tail")
	return []jetstream.StreamConfig{
		{
			Name: c.names.cmd, Description: "commands not yet accepted",
			Subjects:         []string{c.Subjects.AllCommands()},
			SubjectTransform: &jetstream.SubjectTransformConfig{Source: c.Subjects.AllCommands(), Destination: c.Subjects.partitionTransform(t.Partitions)},
			Retention:        jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
			MaxAge: t.CommandAge, MaxBytes: t.CommandBytes, MaxMsgSize: schemas.MaxCommandBytes + 16<<10,
			Storage: jetstream.FileStorage, Replicas: t.Replicas, Duplicates: time.Minute,
		},
		{
			Name: c.names.evt, Description: "process records and lifecycle events",
			Subjects: []string{c.Subjects.AllEvents()}, Discard: jetstream.DiscardOld,
			MaxAge: t.EventAge, MaxBytes: t.EventBytes,
			Storage: jetstream.FileStorage, Replicas: t.Replicas, AllowDirect: true, Duplicates: time.Minute,
			RePublish: &jetstream.RePublish{Source: evtFrom, Destination: evtTo},
		},
		{
			Name: c.names.log, Description: "output of processes",
			Subjects: []string{c.Subjects.AllLogs()}, Discard: jetstream.DiscardOld,
			MaxAge: t.LogAge, MaxBytes: t.LogBytes,
			Storage: jetstream.FileStorage, Replicas: t.Replicas, AllowDirect: true, Duplicates: time.Second,
			RePublish: &jetstream.RePublish{Source: logFrom, Destination: logTo},
		},
	}
}

func (c *Conn) bucketConfigs(t Topology) []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{Bucket: c.names.state, Description: "sessions by tenant and thread, and the workers", History: 1, LimitMarkerTTL: deletedFor, Storage: jetstream.FileStorage, Replicas: t.Replicas},
		// A lease is alive while its key is: the server's clock alone decides, and each renewal restarts it.
		{Bucket: c.names.leases, Description: "leases of live workers", History: 1, TTL: t.LeaseTTL, Storage: jetstream.FileStorage, Replicas: t.Replicas},
	}
}

// ensureStream updates before it creates, unless there is probably nothing to update: a stream that is there already is counted a
// second time by whoever asks to create it, and would not fit into a store that it fills by more than half.
func (c *Conn) ensureStream(ctx context.Context, cfg jetstream.StreamConfig, fresh bool) error {
	if fresh {
		if _, err := c.js.CreateStream(ctx, cfg); err == nil {
			return nil
		}
	}
	_, err := c.js.UpdateStream(ctx, cfg)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	if _, err = c.js.CreateStream(ctx, cfg); err == nil {
		return nil
	}
	// Somebody else may have created it in between.
	if _, again := c.js.UpdateStream(ctx, cfg); !errors.Is(again, jetstream.ErrStreamNotFound) {
		return again
	}
	return err
}

// ensureBucket does the same for a bucket, and keeps it open.
func (c *Conn) ensureBucket(ctx context.Context, cfg jetstream.KeyValueConfig, fresh bool) error {
	open := c.js.CreateOrUpdateKeyValue
	if fresh {
		open = c.js.CreateKeyValue
	}
	kv, err := open(ctx, cfg)
	if err != nil && fresh {
		kv, err = c.js.CreateOrUpdateKeyValue(ctx, cfg)
	}
	if err != nil {
		return err
	}
	c.bucketMu.Lock()
	defer c.bucketMu.Unlock()
	c.buckets[cfg.Bucket] = kv
	return nil
}

// needStream makes a stream that not every worker needs, at its first use: known says that it is there.
func (c *Conn) needStream(ctx context.Context, known *atomic.Bool, cfg jetstream.StreamConfig) error {
	if known.Load() {
		return nil
	}
	if err := c.ensureStream(ctx, cfg, false); err != nil {
		return wrap(err, "create stream "+cfg.Name)
	}
	known.Store(true)
	return nil
}
