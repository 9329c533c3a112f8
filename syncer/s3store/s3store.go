package s3store

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// Options select the bucket and how to reach it. Their defaults are the SDK's usual environment variables, profiles and
// instance roles.
type Options struct {
	Bucket string // required
	// Prefix precedes every key, with a slash between; "" is the whole bucket.
	Prefix string
	// Endpoint is the server's URL; default: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, else AWS.
	Endpoint string
	// Region is the bucket's; default: the environment's, else us-east-1.
	Region string
	// Profile is a profile of the shared configuration files; default: the environment's.
	Profile string
	// Timeout bounds the time in which a connection sends and receives nothing while it has something to do; default 60 s.
	Timeout time.Duration
	// Client overrides the HTTP client, for tests.
	Client aws.HTTPClient
}

// Store keeps objects in a bucket under a prefix.
type Store struct {
	client *s3.Client
	bucket string
	prefix string

	slots    chan struct{}           // one for each part that is being sent
	noCopies *atomic.Bool            // the server cannot copy parts
	checksum types.ChecksumAlgorithm // of parts; "" where the server may not support one
}

var _ objectstore.Store = (*Store)(nil)

// Open reads the configuration. It does not connect to the server.
//
// Errors: invalid_argument for invalid options and configuration files.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Bucket == "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "s3: no bucket given")
	}
	load := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}), // each operation returns its own error
		config.WithHTTPClient(newHTTPClient(cmp.Or(max(o.Timeout, 0), time.Minute))),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(o.Profile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "s3: configuration: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if cfg.Credentials != nil {
		cfg.Credentials = credentials{cfg.Credentials}
	}
	var foreign bool
	client := s3.NewFromConfig(cfg, func(s *s3.Options) {
		if o.Client != nil {
			s.HTTPClient = o.Client
		}
		s.HTTPClient = counting{s.HTTPClient}
		if o.Endpoint != "" {
			s.BaseEndpoint = aws.String(o.Endpoint)
		}
		if foreign = s.BaseEndpoint != nil && !isAWS(*s.BaseEndpoint); foreign {
			s.UsePathStyle = true
			s.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}
		s.DisableLogOutputChecksumValidationSkipped = true
		s.ContinueHeaderThresholdBytes = -1 // a wait for 100 Continue costs a round trip for each object
		s.APIOptions = append(s.APIOptions, reuseDigest)
	})
	s := &Store{client: client, bucket: o.Bucket, slots: make(chan struct{}, partsAtOnce), noCopies: &atomic.Bool{}}
	if !foreign {
		s.checksum = types.ChecksumAlgorithmCrc32
	}
	return s.At(o.Prefix), nil
}

// At returns the same bucket under another prefix, with the same connections and credentials.
func (s *Store) At(prefix string) *Store {
	at := *s
	if at.prefix = strings.Trim(prefix, "/"); at.prefix != "" {
		at.prefix += "/"
	}
	return &at
}

func isAWS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (strings.HasSuffix(u.Hostname(), ".amazonaws.com") || strings.HasSuffix(u.Hostname(), ".amazonaws.com.cn"))
}

type digestKey struct{}

// reuseDigest signs a request with the caller's digest, where there is one, which saves reading the body once more.
func reuseDigest(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("SluiceReuseDigest",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
			middleware.FinalizeOutput, middleware.Metadata, error) {
			if sum, ok := ctx.Value(digestKey{}).(string); ok {
				ctx = v4.SetPayloadHash(ctx, sum)
			}
			return next.HandleFinalize(ctx, in)
		}), middleware.Before)
}

func (s *Store) key(key string) *string { return aws.String(s.prefix + key) }

// Get implements [objectstore.Store].
func (s *Store) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)}
	switch {
	case r.Length > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1))
	case r.Offset > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", r.Offset))
	}
	if r.Match != "" {
		in.IfMatch = &r.Match
	}
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		return nil, objectstore.Info{}, coded(ctx, err, key)
	}
	defer func() { _ = out.Body.Close() }() // the read has reported any error
	length := aws.ToInt64(out.ContentLength)
	info := s.describe(key, length, out.ETag, out.LastModified, string(out.ServerSideEncryption))
	if total, ok := totalSize(aws.ToString(out.ContentRange)); ok {
		info.Size = total
	}
	switch {
	case r.Match != "" && r.Match != info.Token: // some servers ignore If-Match here
		err = schemas.Errorf(schemas.CodeConflict, "s3: %q was replaced", key)
	case length < 0:
		err = schemas.Errorf(schemas.CodeUnavailable, "s3: %q: the response has no length", key)
	case r.Length > 0 && length > r.Length:
		err = schemas.Errorf(schemas.CodeInternal, "s3: %q: the server ignores ranges", key)
	case r.Length == 0 && r.Max > 0 && length > r.Max:
		err = schemas.Errorf(schemas.CodeTooLarge, "s3: %q has %d bytes, the limit is %d", key, length, r.Max)
	}
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	if int64(cap(dst)) < length {
		dst = make([]byte, length)
	}
	dst = dst[:length]
	if _, err := io.ReadFull(out.Body, dst); err != nil {
		if ctx.Err() != nil {
			return nil, info, ctx.Err()
		}
		return nil, info, schemas.Errorf(schemas.CodeUnavailable, "s3: reading %q: %w", key, err)
	}
	return dst, info, nil
}

func totalSize(contentRange string) (total int64, ok bool) {
	_, after, found := strings.Cut(contentRange, "/")
	if !found {
		return 0, false
	}
	_, err := fmt.Sscan(after, &total)
	return total, err == nil
}

func (s *Store) describe(key string, size int64, etag *string, modified *time.Time, sse string) objectstore.Info {
	info := objectstore.Info{Key: key, Size: size, Token: aws.ToString(etag), Modified: aws.ToTime(modified)}
	var sum [md5.Size]byte
	raw := strings.Trim(info.Token, `"`)
	if len(raw) == 2*md5.Size && (sse == "" || sse == string(types.ServerSideEncryptionAes256)) {
		if _, err := hex.Decode(sum[:], []byte(raw)); err == nil {
			info.MD5 = &sum
		}
	}
	return info
}

// Stat implements [objectstore.Store].
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err != nil {
		return objectstore.Info{}, coded(ctx, err, key)
	}
	return s.describe(key, aws.ToInt64(out.ContentLength), out.ETag, out.LastModified, string(out.ServerSideEncryption)), nil
}

// Put implements [objectstore.Store].
func (s *Store) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (token string, err error) {
	var ifMatch, ifNone *string
	if cond.Match != "" {
		ifMatch = &cond.Match
	}
	if cond.Absent {
		ifNone = aws.String("*")
	}
	if c.Send == objectstore.InParts || c.Send == objectstore.BySize && c.Size > objectstore.PartsFrom {
		return s.putParts(ctx, key, c, ifMatch, ifNone)
	}
	if c.SHA256 != nil {
		ctx = context.WithValue(ctx, digestKey{}, hex.EncodeToString(c.SHA256[:]))
	}
	err = throughFolderRaces(func() error {
		out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &s.bucket, Key: s.key(key), Body: c.Open(), ContentLength: &c.Size, IfMatch: ifMatch, IfNoneMatch: ifNone,
		})
		if err == nil {
			token = aws.ToString(out.ETag)
		}
		return err
	})
	return token, coded(ctx, err, key)
}

// List implements [objectstore.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{
			Bucket: &s.bucket, Prefix: s.key(prefix), EncodingType: types.EncodingTypeUrl,
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(objectstore.Info{}, coded(ctx, err, prefix))
				return
			}
			for i := range page.Contents {
				o := &page.Contents[i]
				name := aws.ToString(o.Key)
				if page.EncodingType == types.EncodingTypeUrl { // encoded to be valid XML
					name, err = url.QueryUnescape(name)
				}
				if err != nil {
					yield(objectstore.Info{}, schemas.Errorf(schemas.CodeInternal, "s3: list objects: %w", err))
					return
				}
				rel, ok := strings.CutPrefix(name, s.prefix)
				if !ok || rel == "" || strings.HasSuffix(rel, "/") {
					continue // a folder marker of another tool
				}
				// A listing does not report encryption, so the ETag may not be an MD5.
				if !yield(s.describe(rel, aws.ToInt64(o.Size), o.ETag, o.LastModified, "unknown"), nil) {
					return
				}
			}
		}
	}
}

// Delete implements [objectstore.Store].
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for len(keys) > 0 {
		batch := keys[:min(1000, len(keys))]
		keys = keys[len(batch):]
		if len(batch) == 1 {
			_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(batch[0])})
			if err = coded(ctx, err, batch[0]); err != nil && !errors.Is(err, schemas.ErrNotFound) {
				return err
			}
			continue
		}
		ids := make([]types.ObjectIdentifier, len(batch))
		for i, k := range batch {
			ids[i].Key = s.key(k)
		}
		out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err != nil {
			return coded(ctx, err, batch[0])
		}
		for _, e := range out.Errors {
			if code := aws.ToString(e.Code); code != "NoSuchKey" {
				return schemas.Errorf(schemas.CodeUnavailable, "s3: deleting %q: %s: %s",
					aws.ToString(e.Key), code, aws.ToString(e.Message))
			}
		}
	}
	return nil
}
