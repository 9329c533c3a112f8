package storetest

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// Memory is a store in memory. The zero value is empty and ready to use.
type Memory struct {
	mu      sync.Mutex
	objects map[string]object
	// IgnoreConditions makes Put ignore conditions, as some servers do.
	IgnoreConditions bool
}

type object struct {
	data     []byte
	sum      [md5.Size]byte // of data
	modified time.Time
}

var _ objectstore.Store = (*Memory)(nil)

func (o object) info(key string) objectstore.Info {
	return objectstore.Info{
		Key: key, Size: int64(len(o.data)), Token: hex.EncodeToString(o.sum[:]), Modified: o.modified, MD5: &o.sum,
	}
}

func (m *Memory) find(ctx context.Context, key string) (object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if err := ctx.Err(); err != nil || ok {
		return o, err
	}
	return o, schemas.Errorf(schemas.CodeNotFound, "memory: no %q", key)
}

// Get implements [objectstore.Store].
func (m *Memory) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	info := o.info(key)
	if r.Match != "" && r.Match != info.Token {
		return nil, info, schemas.Errorf(schemas.CodeConflict, "memory: %q was replaced", key)
	}
	data := o.data[min(r.Offset, info.Size):]
	if r.Length > 0 {
		data = data[:min(r.Length, int64(len(data)))]
	} else if r.Max > 0 && int64(len(data)) > r.Max {
		return nil, info, schemas.Errorf(schemas.CodeTooLarge, "memory: %q has %d bytes", key, len(data))
	}
	return append(dst[:0], data...), info, nil
}

// Stat implements [objectstore.Store].
func (m *Memory) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return objectstore.Info{}, err
	}
	return o.info(key), nil
}

// Put implements [objectstore.Store].
func (m *Memory) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	data := make([]byte, c.Size)
	if _, err := io.ReadFull(c.Open(), data); err != nil {
		return "", schemas.Errorf(schemas.CodeInternal, "memory: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, there := m.objects[key]
	if !m.IgnoreConditions && (cond.Absent && there || cond.Match != "" && (!there || old.info(key).Token != cond.Match)) {
		return "", schemas.Errorf(schemas.CodeConflict, "memory: %q does not meet the condition", key)
	}
	if m.objects == nil {
		m.objects = map[string]object{}
	}
	o := object{data: data, sum: md5.Sum(data), modified: time.Now()}
	m.objects[key] = o
	return o.info(key).Token, nil
}

// Clone returns a store with the same objects. What is put into one of the two, or deleted, is as it was in the other.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{objects: maps.Clone(m.objects), IgnoreConditions: m.IgnoreConditions}
}

// List implements [objectstore.Store].
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		var all []objectstore.Info
		m.mu.Lock()
		for key, o := range m.objects {
			if strings.HasPrefix(key, prefix) {
				all = append(all, o.info(key))
			}
		}
		m.mu.Unlock()
		slices.SortFunc(all, func(a, b objectstore.Info) int { return cmp.Compare(a.Key, b.Key) })
		for _, i := range all {
			if err := ctx.Err(); err != nil {
				yield(objectstore.Info{}, err)
				return
			}
			if !yield(i, nil) {
				return
			}
		}
	}
}

// AbortUpload implements [objectstore.Store]: this store has no uploads in parts.
func (*Memory) AbortUpload(ctx context.Context, _ objectstore.Upload) error { return ctx.Err() }

// Delete implements [objectstore.Store].
func (m *Memory) Delete(ctx context.Context, keys ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.objects, key)
	}
	return nil
}
