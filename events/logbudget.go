package events

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Budgets of LOG. See docs/adr/0024.
const (
	// budgetParts is how finely a writer knows its oldest output, and trimShare the share of a budget that goes at once.
	budgetParts = 32
	trimShare   = 8
	// chunkOverhead is what LOG stores of a chunk beside its data and subject.
	chunkOverhead = 160
)

// The metadata of LOG with the budgets, and that of CMD with the bounds of the streams that are created at their first use, in bytes.
const (
	metaProcessBytes = "sluice-process-bytes"
	metaTenantBytes  = "sluice-tenant-bytes"
	metaMessageBytes = "sluice-message-bytes"
	metaDeadBytes    = "sluice-dead-bytes"
)

// logBudget counts what this connection has stored in LOG, by tenant, and what of it was dropped again.
type logBudget struct {
	mu              sync.Mutex
	process, tenant int64 // 0 for no bound
	usage           map[string][]*segment
	floors          map[string]uint64 // by tenant: the sequence up to which its output was dropped
	grown           int64             // stored since the last check of tenants
	loaded          bool              // usage has what earlier incarnations stored
}

// segment is what was stored for a tenant after the one before it, up to a sequence of LOG.
type segment struct {
	Last  uint64 `json:"last"`
	Bytes int64  `json:"bytes"`
}

func newLogBudget() *logBudget {
	return &logBudget{usage: make(map[string][]*segment), floors: make(map[string]uint64)}
}

func (b *logBudget) set(t Topology) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process, b.tenant = t.LogProcessBytes, t.LogTenantBytes
}

// add counts a chunk that LOG has stored.
func (b *logBudget) add(tenant string, seq uint64, size int64) *segment {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.usage[tenant]
	if n := len(all); n == 0 || all[n-1].Bytes >= max(b.tenant/128, 1) {
		all = append(all, &segment{})
		b.usage[tenant] = all
	}
	s := all[len(all)-1]
	s.Last, s.Bytes, b.grown = max(s.Last, seq), s.Bytes+size, b.grown+size
	return s
}

// remove counts output of a tenant that was dropped.
func (b *logBudget) remove(tenant string, p part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := p.segment
	if s == nil && p.last > b.floors[tenant] { // an earlier incarnation stored it
		all := b.usage[tenant]
		if i := slices.IndexFunc(all, func(s *segment) bool { return s.Last >= p.last }); i >= 0 {
			s = all[i]
		}
	}
	if s != nil {
		s.Bytes = max(s.Bytes-p.bytes, 0)
	}
}

func (b *logBudget) ofProcess() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.process
}

// part is a piece of a process's output in LOG.
type part struct {
	segment *segment // nil when another writer stored it
	last    uint64   // the sequence of its newest chunk; 0 when another worker may have stored it
	bytes   int64
	chunks  [2]int64 // of stdout and stderr
}

// outputParts is what LOG has of the process of one writer, stored by it or before it.
type outputParts struct {
	parts    []part
	held     int64
	trimAt   int64    // trim when more than this is held
	dropped  [2]int64 // the offset up to which each stream was dropped
	reported [2]int64 // the same, when it was last reported
}

// add counts a chunk that LOG holds.
func (o *outputParts) add(s *segment, seq uint64, stream schemas.Stream, size, limit int64) {
	if n := len(o.parts); n == 0 || o.parts[n-1].segment != s || o.parts[n-1].bytes >= limit/budgetParts {
		o.parts = append(o.parts, part{segment: s})
	}
	p := &o.parts[len(o.parts)-1]
	p.last, p.bytes = seq, p.bytes+size
	p.chunks[index(stream)]++
	o.held += size
}

// chunkSize is what LOG stores of a chunk.
func chunkSize(r schemas.ProcessRef, data []byte) int64 {
	return int64(len(data)+len(r.Tenant)+len(r.Thread)+len(r.Process)) + chunkOverhead
}

// hold counts a stored chunk, and drops the process's oldest output when it has more than its budget.
func (w *LogWriter) hold(k *outChunk, seq uint64) {
	size := chunkSize(w.ref, k.data)
	s := w.conn.budget.add(w.ref.Tenant, seq, size)
	limit := w.conn.budget.ofProcess()
	if limit <= 0 {
		return
	}
	o := &w.output
	if o.add(s, seq, k.stream, size, limit); o.held > max(limit, o.trimAt) {
		w.trim(limit)
	}
}

func index(s schemas.Stream) int {
	if s == schemas.Stderr {
		return 1
	}
	return 0
}

// trim drops the oldest output of the process until LOG has a little less of it than the budget allows.
func (w *LogWriter) trim(limit int64) {
	o := &w.output
	o.trimAt = o.held + limit/budgetParts // when the server does not answer
	var n int
	left := o.held
	var drop, keep [2]int64
	for ; n < len(o.parts)-1 && left > limit-limit/trimShare; n++ {
		left -= o.parts[n].bytes
		drop[0], drop[1] = drop[0]+o.parts[n].chunks[0], drop[1]+o.parts[n].chunks[1]
	}
	for _, p := range o.parts[n:] {
		keep[0], keep[1] = keep[0]+p.chunks[0], keep[1]+p.chunks[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	for i, s := range schemas.Streams() {
		if drop[i] == 0 {
			continue
		}
		if err := w.purge(ctx, s, max(keep[i], 1)); err != nil { // the newest may be in flight
			return
		}
	}
	for _, p := range o.parts[:n] {
		w.conn.budget.remove(w.ref.Tenant, p)
	}
	o.parts, o.held, o.trimAt = append([]part(nil), o.parts[n:]...), left, 0
	w.noteDropped(ctx)
	for i := range o.dropped {
		if o.dropped[i] >= 2*o.reported[i] { // a process that prints without end reports few gaps
			w.reportDropped(i)
		}
	}
}

// purge drops all output of a stream but the newest chunks. By subject and count the server reads no more than what it drops.
func (w *LogWriter) purge(ctx context.Context, s schemas.Stream, keep int64) error {
	if err := w.conn.leased(); err != nil {
		return err
	}
	log, err := w.conn.bulkJS.Stream(ctx, w.conn.names.log)
	if err != nil {
		return err
	}
	return log.Purge(ctx, jetstream.WithPurgeSubject(w.conn.subjects.Log(w.ref.Tenant, w.ref.Thread, w.ref.Process, s)), jetstream.WithPurgeKeep(uint64(keep)))
}

// noteDropped reads where the rest of the output begins. A failure is no harm: readers see the offsets too.
func (w *LogWriter) noteDropped(ctx context.Context) {
	first := w.rng.LastSeq
	for i, s := range schemas.Streams() {
		subject := w.conn.subjects.Log(w.ref.Tenant, w.ref.Thread, w.ref.Process, s)
		m, err := w.conn.leaderGet(ctx, w.conn.names.log, directRequest{Seq: 1, NextBy: subject})
		if err != nil || m == nil {
			continue
		}
		if k, ok := w.conn.subjects.decodeChunk(m.seq, m.subject, m.header, m.data); ok {
			first = min(first, k.Seq)
			if k.Epoch == w.ref.Epoch { // else only of an earlier run
				w.output.dropped[i] = max(w.output.dropped[i], k.Offset)
			}
		}
	}
	w.rng.FirstSeq = max(w.rng.FirstSeq, first)
	w.rng.StdoutFrom, w.rng.StderrFrom = w.output.dropped[0], w.output.dropped[1]
}

// reportDropped reports what was dropped of a stream since the last report.
func (w *LogWriter) reportDropped(i int) {
	o := &w.output
	if o.dropped[i] > o.reported[i] && w.onDropped != nil {
		w.onDropped(schemas.Streams()[i], o.reported[i], o.dropped[i])
	}
	o.reported[i] = o.dropped[i]
}

// budgetsOf reads the budgets of a stream's metadata.
func budgetsOf(meta map[string]string) (process, tenant int64) {
	process, _ = strconv.ParseInt(meta[metaProcessBytes], 10, 64)
	tenant, _ = strconv.ParseInt(meta[metaTenantBytes], 10, 64)
	return process, tenant
}

// withBounds is a configuration with the bounds of a stream that exists.
func withBounds(cfg, have jetstream.StreamConfig) jetstream.StreamConfig {
	cfg.MaxBytes, cfg.MaxAge, cfg.Duplicates = have.MaxBytes, have.MaxAge, have.Duplicates
	for key := range cfg.Metadata {
		cfg.Metadata[key] = cmp.Or(have.Metadata[key], cfg.Metadata[key])
	}
	return cfg
}
