package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// Topology configures the streams of a cell. The zero value suits one machine.
type Topology struct {
	// Partitions is the number of partitions of CMD. The commands of one thread stay in one partition, in order. Default 4; use
	// 16 for a fleet. A change remaps threads: drain CMD first.
	Partitions int
	// Replicas is the number of replicas of each stream and bucket, 1 to 5. Default 1; use 3 in a cluster.
	Replicas int
	// CommandAge, EventAge and LogAge are how long each stream keeps a message. Default 24, 72 and 24 hours.
	CommandAge, EventAge, LogAge time.Duration
	// MessageAge is how long MSG keeps the messages of conversations. Default 0: forever.
	MessageAge time.Duration
	// CommandBytes, EventBytes, LogBytes, MessageBytes and DeadBytes bound each stream. Default 256 MiB, 2 GiB, 8 GiB, 1 GiB,
	// 64 MiB, less where the account or the server has less room. A full CMD rejects new commands, which is the back-pressure. When EVT is
	// nearly full, workers accept no commands. A full MSG refuses new messages. LOG and DLQ drop their oldest messages.
	CommandBytes, EventBytes, LogBytes, MessageBytes, DeadBytes int64
	// LogProcessBytes and LogTenantBytes bound what LOG holds of one process and of one tenant. Beyond it their own oldest output is
	// dropped. Default a sixteenth, 512 MiB, and half, 4 GiB, of LogBytes. 0 leaves those that another worker has set; [DefaultShare] is the
	// default in their place.
	LogProcessBytes, LogTenantBytes int64
	// EventTenantBytes bounds what EVT holds of one tenant: beyond it, its commands are refused. Default: seven times what the tenant leaves
	// free for records. 0 leaves a bound that another worker has set; [DefaultShare] removes it.
	EventTenantBytes int64
	// Room is how many bytes all streams may take, as far as their sizes are not set and they do not exist: those take less than their defaults
	// then. Default 0: what the account has room for.
	Room int64
	// LeaseTTL is the time to live of a worker's lease. Default 10 s.
	LeaseTTL time.Duration
	// Keep leaves the bounds of streams that exist as they are: those here are for streams that are missing. Default: they are updated.
	Keep bool
}

// DefaultShare is the default of LogProcessBytes, LogTenantBytes or EventTenantBytes, also where the streams have another share.
const DefaultShare = -1

// WithDefaults returns the topology with the defaults in place of zeros and of DefaultShare.
func (t Topology) WithDefaults() Topology {
	t.Partitions = cmp.Or(t.Partitions, 4)
	t.Replicas = cmp.Or(t.Replicas, 1)
	t.CommandAge = cmp.Or(t.CommandAge, 24*time.Hour)
	t.EventAge = cmp.Or(t.EventAge, 72*time.Hour)
	t.LogAge = cmp.Or(t.LogAge, 24*time.Hour)
	t.LeaseTTL = cmp.Or(t.LeaseTTL, 10*time.Second)
	t.CommandBytes = cmp.Or(t.CommandBytes, 256<<20)
	t.EventBytes = cmp.Or(t.EventBytes, 2<<30)
	t.LogBytes = cmp.Or(t.LogBytes, 8<<30)
	t.MessageBytes = cmp.Or(t.MessageBytes, 1<<30)
	t.DeadBytes = cmp.Or(t.DeadBytes, 64<<20)
	for _, share := range []*int64{&t.LogProcessBytes, &t.LogTenantBytes, &t.EventTenantBytes} {
		*share = max(*share, 0)
	}
	if t.LogBytes > 0 {
		t.LogProcessBytes = cmp.Or(t.LogProcessBytes, t.LogBytes/16)
		t.LogTenantBytes = cmp.Or(t.LogTenantBytes, t.LogBytes/2)
	}
	return t
}

// StoreBytes returns the sum of the bounds of all streams, in bytes.
func (t Topology) StoreBytes() int64 {
	t = t.WithDefaults()
	return t.CommandBytes + t.EventBytes + t.LogBytes + t.MessageBytes + t.DeadBytes
}

// layout says which streams and buckets a cell has, and how they are configured.
type layout struct {
	subjects Subjects
	names    names
	topology Topology // set by Ensure
}

// names are the names of a cell's streams and buckets.
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

// Waits of EnsureLater.
const (
	minEnsureWait = 250 * time.Millisecond
	maxEnsureWait = time.Second // queued commands wait for the worker, too
	// ensureTimeout bounds one try: a request that finds no leader has no answer. What the try began goes on in the server.
	ensureTimeout = 10 * time.Second
)

// EnsureLater is Ensure, and tries again while NATS or JetStream does not answer, or a cluster is not complete. It calls waiting after
// each such try. Errors: ctx's, and those of Ensure that do not pass.
func (c *Conn) EnsureLater(ctx context.Context, t Topology, waiting func(error)) error {
	for wait := minEnsureWait; ; wait = min(2*wait, maxEnsureWait) {
		try, cancel := context.WithTimeout(ctx, ensureTimeout)
		err := c.Ensure(try, t)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !isTransient(err) || c.Closed():
			return err
		}
		waiting(err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Ensure creates the cell's streams and buckets, and updates those that exist. Any number of workers may run it at once. Errors:
// unavailable and deadline_exceeded when JetStream cannot be reached or is not enabled, unauthenticated and permission_denied when the
// server refuses, limit_exceeded, internal when the configuration of an existing stream cannot be changed into this one,
// invalid_argument when the server is too old.
func (c *Conn) Ensure(ctx context.Context, t Topology) error { return c.refusal(c.ensure(ctx, t)) }

func (c *Conn) ensure(ctx context.Context, t Topology) error {
	// No earlier version was tried with the consumers of CMD; see dispatcherConfig.
	if version := c.nc.ConnectedServerVersion(); isBefore(version, 2, 14) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "NATS server %s has version %s: Sluice needs 2.14 or later", c.ServerURL(), version)
	}
	// Create first in an account without streams, else update first.
	first, cancel := context.WithTimeout(ctx, readTimeout)
	account, err := answered(first, c.js.AccountInfo)
	cancel()
	if err != nil {
		return wrap(err, "read the JetStream account")
	}
	return ensureWithin(ctx, c, t, account)
}

// ensureTopology creates or updates the streams and buckets. Errors: limit_exceeded when they do not fit into the store.
func ensureTopology(ctx context.Context, c *Conn, t Topology, fresh bool) error {
	// In parallel: each costs the server a dozen file operations. An error cancels none of the others: the server would do what was asked
	// already, perhaps after what the next try asks for.
	var group errgroup.Group
	for _, cfg := range c.streamConfigs(t) {
		group.Go(func() error {
			if cfg.Name == c.names.evt {
				c.room.state.Lock()
				defer c.room.state.Unlock()
			}
			s, err := c.ensureStream(ctx, cfg, fresh)
			if err != nil {
				return wrap(err, "create stream "+cfg.Name)
			}
			if cfg.Name == c.names.evt {
				c.room.update(s.CachedInfo(), 0)
			}
			if cfg.Name == c.names.log && t.Keep {
				kept := t
				kept.LogProcessBytes, kept.LogTenantBytes = budgetsOf(s.CachedInfo().Config.Metadata)
				c.budget.set(kept)
			}
			if cfg.Name != c.names.cmd {
				return nil
			}
			for p := range t.Partitions {
				group.Go(func() error { return c.ensureDispatcher(ctx, p, fresh) })
			}
			return nil
		})
	}
	for _, cfg := range c.bucketConfigs(t) {
		group.Go(func() error { return wrap(c.ensureBucket(ctx, cfg, fresh), "create bucket "+cfg.Bucket) })
	}
	return group.Wait()
}

// isBefore reports whether a version is earlier. One in another form is not.
func isBefore(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || a == major && b < minor
}

// commands returns the stream CMD. Errors: those of nats.go.
func (c *Conn) commands(ctx context.Context) (jetstream.Stream, error) {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	if c.cmd == nil {
		s, err := c.js.Stream(ctx, c.names.cmd)
		if err != nil {
			return nil, err
		}
		c.cmd = s
	}
	return c.cmd, nil
}

func (l *layout) streamConfigs(t Topology) []jetstream.StreamConfig {
	s := l.subjects.Streams()
	evtFrom, evtTo := s.republish("evt", "feed")
	logFrom, logTo := s.republish("log", "tail")
	return []jetstream.StreamConfig{
		{
			Name: l.names.cmd, Description: "commands not yet accepted",
			Subjects:         []string{s.Commands()},
			SubjectTransform: &jetstream.SubjectTransformConfig{Source: s.Commands(), Destination: s.partitionTransform(t.Partitions)},
			Retention:        jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
			MaxAge: t.CommandAge, MaxBytes: t.CommandBytes, MaxMsgSize: schemas.MaxCommandBytes + 16<<10,
			Metadata: map[string]string{
				metaMessageBytes: strconv.FormatInt(t.MessageBytes, 10), metaDeadBytes: strconv.FormatInt(t.DeadBytes, 10),
			},
			Storage: jetstream.FileStorage, Replicas: t.Replicas, Duplicates: time.Minute,
		},
		{
			Name: l.names.evt, Description: "process records and lifecycle events",
			Subjects: []string{s.Events()}, Discard: jetstream.DiscardNew, // see eventRoom
			MaxAge: t.EventAge, MaxBytes: t.EventBytes,
			Metadata: map[string]string{metaTenantBytes: strconv.FormatInt(t.EventTenantBytes, 10)},
			Storage:  jetstream.FileStorage, Replicas: t.Replicas, AllowDirect: true, Duplicates: min(time.Minute, t.EventAge),
			RePublish: &jetstream.RePublish{Source: evtFrom, Destination: evtTo},
		},
		{
			Name: l.names.log, Description: "output of processes",
			Subjects: []string{s.Logs()}, Discard: jetstream.DiscardOld,
			MaxAge: t.LogAge, MaxBytes: t.LogBytes,
			Metadata: map[string]string{
				metaProcessBytes: strconv.FormatInt(t.LogProcessBytes, 10), metaTenantBytes: strconv.FormatInt(t.LogTenantBytes, 10),
			},
			Storage: jetstream.FileStorage, Replicas: t.Replicas, AllowDirect: true, Duplicates: time.Second,
			RePublish: &jetstream.RePublish{Source: logFrom, Destination: logTo},
		},
	}
}

func (l *layout) bucketConfigs(t Topology) []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{Bucket: l.names.state, Description: "sessions by tenant and thread, and the workers", History: 1, LimitMarkerTTL: deleteMarkerTTL, Storage: jetstream.FileStorage, Replicas: t.Replicas},
		// A lease is alive while its key exists. Only the clock of the server counts; each renewal restarts the TTL.
		{Bucket: l.names.leases, Description: "leases of live workers", History: 1, TTL: t.LeaseTTL, Storage: jetstream.FileStorage, Replicas: t.Replicas},
	}
}

// ensureStream updates before it creates, unless fresh says that nothing exists: for a create request the server counts an existing
// stream a second time, so one that fills more than half of the store would not fit.
func (c *Conn) ensureStream(ctx context.Context, cfg jetstream.StreamConfig, fresh bool) (jetstream.Stream, error) {
	if fresh {
		if s, err := c.js.CreateStream(ctx, cfg); err == nil {
			return s, nil
		}
	}
	s, err := c.updateStream(ctx, cfg)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return s, err
	}
	if s, err = c.js.CreateStream(ctx, cfg); err == nil {
		return s, nil
	}
	// Another worker may have created it in between.
	if s, again := c.updateStream(ctx, cfg); !errors.Is(again, jetstream.ErrStreamNotFound) {
		return s, again
	}
	return nil, err
}

// updateStream updates a stream that has another configuration. It leaves one that has this configuration alone: the server would write
// its files again, and each worker that starts asks for that.
func (c *Conn) updateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := answered(ctx, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, cfg.Name) })
	if err == nil && c.topology.Keep {
		cfg = withBounds(cfg, s.CachedInfo().Config)
	}
	if err != nil || hasConfig(s.CachedInfo().Config, cfg) {
		return s, err
	}
	return c.js.UpdateStream(ctx, cfg)
}

// hasConfig reports whether a stream's configuration is want, in which a zero value may stand for no limit.
func hasConfig(have, want jetstream.StreamConfig) bool {
	have.Metadata = maps.Clone(have.Metadata)
	maps.DeleteFunc(have.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") }) // the server's notes
	if len(have.Metadata) == 0 && len(want.Metadata) == 0 {
		have.Metadata = want.Metadata
	}
	h, w := reflect.ValueOf(have), reflect.ValueOf(&want).Elem()
	for i := range w.NumField() {
		if v := h.Field(i); w.Field(i).IsZero() && v.CanInt() && v.Int() == -1 {
			w.Field(i).Set(v)
		}
	}
	return reflect.DeepEqual(have, want)
}

// ensureBucket creates or updates a bucket, unless it exists as it has to be, and keeps it open. To read it needs no agreement of the
// servers.
func (c *Conn) ensureBucket(ctx context.Context, cfg jetstream.KeyValueConfig, fresh bool) error {
	if !fresh {
		s, err := answered(ctx, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, kvStream(cfg.Bucket)) })
		switch {
		case err == nil && isBucket(s.CachedInfo().Config, cfg):
			_, err = c.bucket(ctx, cfg.Bucket)
			return err
		case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		}
	}
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
	c.openMu.Lock()
	defer c.openMu.Unlock()
	c.buckets[cfg.Bucket] = kv
	return nil
}

// isBucket reports whether the stream of a bucket is one with the configuration want.
func isBucket(have jetstream.StreamConfig, want jetstream.KeyValueConfig) bool {
	return have.Description == want.Description && have.MaxMsgsPerSubject == int64(want.History) && have.MaxAge == want.TTL &&
		have.SubjectDeleteMarkerTTL == want.LimitMarkerTTL && have.Storage == want.Storage && have.Replicas == want.Replicas
}

// needStream creates a stream that not every worker needs when it is first used. exists caches that the stream is there.
func (c *Conn) needStream(ctx context.Context, exists *atomic.Bool, cfg jetstream.StreamConfig) error {
	if exists.Load() {
		return nil
	}
	if _, err := c.ensureStream(ctx, cfg, false); err != nil {
		return wrap(err, "create stream "+cfg.Name)
	}
	exists.Store(true)
	return nil
}

// messageConfig is the stream MSG. It is created when the first message is saved: a worker without agents starts faster without it.
func (l *layout) messageConfig() jetstream.StreamConfig {
	from, to := l.subjects.Streams().republish("msg", "said")
	return jetstream.StreamConfig{
		Name: l.names.msg, Description: "messages of conversations",
		Subjects: []string{l.subjects.Streams().Messages()}, Discard: jetstream.DiscardNew, // a history has no holes
		MaxAge: l.topology.MessageAge, MaxBytes: l.topology.MessageBytes,
		Storage: jetstream.FileStorage, Replicas: l.topology.Replicas, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: from, Destination: to},
	}
}

// deadLetterConfig is the stream DLQ. It is created when the first dead letter is stored.
func (l *layout) deadLetterConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: l.names.dlq, Description: "commands that can never be accepted",
		Subjects: []string{l.subjects.Streams().DeadLetters()}, Discard: jetstream.DiscardOld,
		MaxAge: l.topology.EventAge, MaxBytes: l.topology.DeadBytes,
		Storage: jetstream.FileStorage, Replicas: l.topology.Replicas, AllowDirect: true, Duplicates: time.Minute,
	}
}
