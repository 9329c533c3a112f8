package workspace

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"

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
	syncer.Store
	// Name is the place's URL without what may be secret in it; it tells one place from another.
	Name  string
	close func() error
}

// Close gives back what the store holds.
func (p *Place) Close() error { return p.close() }

// Open opens what a URL names: s3://bucket/prefix or file:///path. Errors: invalid_argument for anything else, and those of the
// store.
func Open(ctx context.Context, place string, o Options) (*Place, error) {
	u, err := url.Parse(place)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: %q is no URL: use s3://bucket/prefix or file:///path", place)
	}
	switch {
	case u.Scheme == "s3" && u.Host != "":
		store, err := s3store.Open(ctx, s3store.Options{Bucket: u.Host, Prefix: u.Path, Endpoint: o.Endpoint, Region: o.Region, Profile: o.Profile})
		if err != nil {
			return nil, err
		}
		return &Place{Store: store, Name: nameS3(u.Host, u.Path, o.Endpoint), close: func() error { return nil }}, nil
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path):
		dir, err := dirstore.Open(u.Path)
		if err != nil {
			return nil, err
		}
		return &Place{Store: dir, Name: "file://" + filepath.Clean(u.Path), close: dir.Close}, nil
	}
	return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: %q: use s3://bucket/prefix or file:///path", place)
}

func nameS3(bucket, prefix, endpoint string) string {
	name := "s3://" + bucket + "/" + strings.Trim(prefix, "/")
	if endpoint != "" {
		name += " at " + endpoint
	}
	return name
}
