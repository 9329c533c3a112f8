package objectstore

import "context"

// Upload is an upload in parts that a store has begun and not ended: its parts cost money, and no listing of objects shows them.
type Upload struct {
	Key string `json:"key"` // as the store has it, relative to its prefix
	ID  string `json:"id"`  // the store's name for it
}

// Uploads records the uploads in parts of a Put, so that those of a process that was killed can be aborted: see [Store.AbortUpload].
// It is used from several goroutines at once.
type Uploads interface {
	// Begun records an upload before its first part is sent.
	Begun(u Upload)
	// Ended forgets an upload that was completed or aborted.
	Ended(u Upload)
}

type uploadsKey struct{}

// WithUploads returns a context whose uploads in parts u records.
func WithUploads(ctx context.Context, u Uploads) context.Context {
	return context.WithValue(ctx, uploadsKey{}, u)
}

// UploadsOf returns what records the uploads in parts of ctx.
func UploadsOf(ctx context.Context) Uploads {
	if u, ok := ctx.Value(uploadsKey{}).(Uploads); ok {
		return u
	}
	return unrecorded{}
}

type unrecorded struct{}

// Begun implements [Uploads].
func (unrecorded) Begun(Upload) {}

// Ended implements [Uploads].
func (unrecorded) Ended(Upload) {}
