package workspace

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/s3store"
)

// Options say how to reach an S3 server. Default of each: the AWS SDK's.
type Options struct {
	Endpoint, Region, Profile string
}

// Location is an open store of workspaces. Close it.
type Location struct {
	// Store is not embedded: a location would then look like a store with fewer methods than the real one has.
	Store objectstore.Store
	// Dir is the folder of a file:// location, else "".
	Dir string
	// Name is the URL without credentials. It identifies the location.
	Name  string
	close func() error
}

// Close closes the store.
func (l *Location) Close() error { return l.close() }

// Locations opens locations. Those in one bucket share connections, and credentials that cost a request. The zero value is ready.
type Locations struct {
	mu      sync.Mutex
	buckets map[bucket]*s3store.Store
}

type bucket struct {
	name string
	Options
}

// OpenExisting is Open for a caller that only reads: the folder of a file:// location is not made, and reads as empty.
func (l *Locations) OpenExisting(ctx context.Context, location string, o Options) (*Location, error) {
	if dir, ok := folderOf(location); ok {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return &Location{Store: nothing{}, Name: "file://" + dir, close: func() error { return nil }}, nil
		}
	}
	return l.Open(ctx, location, o)
}

// nothing is a store without objects.
type nothing struct{ objectstore.Store }

// Get implements [objectstore.Store].
func (nothing) Get(_ context.Context, key string, _ objectstore.Range, _ []byte) ([]byte, objectstore.Info, error) {
	return nil, objectstore.Info{}, schemas.Errorf(schemas.CodeNotFound, "folder store: %q does not exist", key)
}

// Stat implements [objectstore.Store].
func (nothing) Stat(_ context.Context, key string) (objectstore.Info, error) {
	return objectstore.Info{}, schemas.Errorf(schemas.CodeNotFound, "folder store: %q does not exist", key)
}

// List implements [objectstore.Store].
func (nothing) List(context.Context, string) iter.Seq2[objectstore.Info, error] {
	return func(func(objectstore.Info, error) bool) {}
}

func parse(location string) (*url.URL, error) {
	return url.Parse(strings.NewReplacer("?", "%3F", "#", "%23").Replace(location))
}

// folderOf returns the folder of a file:// location.
func folderOf(location string) (dir string, ok bool) {
	u, err := parse(location)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) {
		return "", false
	}
	return filepath.Clean(u.Path), true
}

// Open opens a URL: s3://bucket/prefix or file:///path, where ? and # are part of the path. Errors: invalid_argument for anything
// else, and those of the store.
func (l *Locations) Open(ctx context.Context, location string, o Options) (*Location, error) {
	if path, ok := folderOf(location); ok {
		dir, err := dirstore.Open(path)
		if err != nil {
			return nil, err
		}
		return &Location{Store: dir, Dir: path, Name: "file://" + path, close: dir.Close}, nil
	}
	if u, err := parse(location); err == nil && u.Scheme == "s3" && u.Host != "" {
		store, err := l.bucket(ctx, bucket{u.Host, o})
		if err != nil {
			return nil, err
		}
		return &Location{Store: store.At(u.Path), Name: nameS3(u.Host, u.Path, o.Endpoint), close: func() error { return nil }}, nil
	}
	return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: %q is not a location: use s3://bucket/prefix or file:///path", publicLocation(location))
}

// bucket opens a bucket once. Opening reads configuration files and sends no request.
func (l *Locations) bucket(ctx context.Context, b bucket) (*s3store.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.buckets[b]; ok {
		return s, nil
	}
	s, err := s3store.Open(ctx, s3store.Options{Bucket: b.name, Endpoint: b.Endpoint, Region: b.Region, Profile: b.Profile})
	if err != nil {
		return nil, err
	}
	if l.buckets == nil {
		l.buckets = make(map[bucket]*s3store.Store)
	}
	l.buckets[b] = s
	return s, nil
}

// publicLocation is what is no location without credentials, where it is a URL.
func publicLocation(s string) string {
	if strings.Contains(s, "://") {
		return schemas.PublicURL(s)
	}
	return s
}

func nameS3(bucket, prefix, endpoint string) string {
	name := "s3://" + bucket + "/" + strings.Trim(prefix, "/")
	if endpoint != "" {
		name += " at " + schemas.PublicURL(endpoint)
	}
	return name
}
