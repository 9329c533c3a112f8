package workspace

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
)

// Options say how to reach an S3 server. What they leave out is the AWS SDK's usual.
type Options struct {
	Endpoint, Region, Profile string
}

// Place is where workspaces are kept. Close it.
type Place struct {
	// Store is not embedded: a place would then look like a store that can do less than the one it has.
	Store syncer.Store
	// Name is the place's URL without what may be secret in it; it tells one place from another.
	Name  string
	close func() error
}

// Close gives back what the store holds.
func (p *Place) Close() error { return p.close() }

// Places opens places, and keeps what those in one bucket can share: connections, and credentials that it costs a request to get. The
// zero value is ready.
type Places struct {
	mu      sync.Mutex
	buckets map[bucket]*s3store.Store
}

type bucket struct {
	name string
	Options
}

// Open opens what a URL names: s3://bucket/prefix or file:///path. Errors: invalid_argument for anything else, and those of the
// store.
func (p *Places) Open(ctx context.Context, place string, o Options) (*Place, error) {
	u, err := url.Parse(place)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: %q is no URL: use s3://bucket/prefix or file:///path", place)
	}
	switch {
	case u.Scheme == "s3" && u.Host != "":
		store, err := p.bucket(ctx, bucket{u.Host, o})
		if err != nil {
			return nil, err
		}
		return &Place{Store: store.At(u.Path), Name: nameS3(u.Host, u.Path, o.Endpoint), close: func() error { return nil }}, nil
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path):
		dir, err := dirstore.Open(u.Path)
		if err != nil {
			return nil, err
		}
		return &Place{Store: dir, Name: "file://" + filepath.Clean(u.Path), close: dir.Close}, nil
	}
	return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: %q: use s3://bucket/prefix or file:///path", place)
}

// bucket opens a bucket once. Opening reads files, and does not talk to the server.
func (p *Places) bucket(ctx context.Context, b bucket) (*s3store.Store, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.buckets[b]; ok {
		return s, nil
	}
	s, err := s3store.Open(ctx, s3store.Options{Bucket: b.name, Endpoint: b.Endpoint, Region: b.Region, Profile: b.Profile})
	if err != nil {
		return nil, err
	}
	if p.buckets == nil {
		p.buckets = make(map[bucket]*s3store.Store)
	}
	p.buckets[b] = s
	return s, nil
}

func nameS3(bucket, prefix, endpoint string) string {
	name := "s3://" + bucket + "/" + strings.Trim(prefix, "/")
	if endpoint != "" {
		name += " at " + endpoint
	}
	return name
}
