package s3store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

const (
	partsAtOnce  = 8      // of all objects together
	mostParts    = 10_000 // of one object: S3's limit
	abortTimeout = 5 * time.Second
)

// multipart is one upload in parts. Each part is read where it is sent from, so that a part costs no memory, or copied from another
// object, and is repeated alone.
type multipart struct {
	*Store
	key     string
	id      *string
	content objectstore.Content
	repeat  func(ctx context.Context, request func() error) error
	parts   []types.CompletedPart
}

// partSize returns the size of the parts of an object, in bytes.
func partSize(size int64) int64 { return max(objectstore.PartsFrom, (size+mostParts-1)/mostParts) }

// putParts stores content in parts. The last request has the conditions. An upload that fails is aborted, so that the store does
// not keep its parts.
func (s *Store) putParts(ctx context.Context, key string, c objectstore.Content, ifMatch, ifNone *string) (token string, err error) {
	m := &multipart{Store: s, key: key, content: c, repeat: c.Repeat}
	if m.repeat == nil {
		m.repeat = func(_ context.Context, request func() error) error { return request() }
	}
	if err := m.begin(ctx); err != nil {
		return "", err
	}
	if err = m.upload(ctx); err == nil {
		token, err = m.complete(ctx, ifMatch, ifNone)
	}
	if err == nil {
		objectstore.UploadsOf(ctx).Ended(m.recorded())
		return token, nil
	}
	if left := m.abort(ctx); left != nil {
		err = errors.Join(err, left)
	}
	return "", err
}

func (m *multipart) begin(ctx context.Context) error {
	begun, err := m.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &m.bucket, Key: m.Store.key(m.key), ChecksumAlgorithm: m.checksum,
	})
	if err != nil {
		return coded(ctx, err, m.key)
	}
	m.id = begun.UploadId
	objectstore.UploadsOf(ctx).Begun(m.recorded())
	return nil
}

// recorded returns the upload as [objectstore.Uploads] has it.
func (m *multipart) recorded() objectstore.Upload {
	return objectstore.Upload{Key: m.key, ID: aws.ToString(m.id)}
}

// upload stores the parts: copies of other objects where the server can make them, else the content.
func (m *multipart) upload(ctx context.Context) error {
	if from := m.content.From; len(from) > 0 && len(from) <= mostParts && !m.noCopies.Load() {
		err := m.each(ctx, len(from), func(ctx context.Context, i int) (func() error, error) {
			return func() error { return m.copy(ctx, i, from[i].Key) }, nil
		})
		if err == nil || ctx.Err() != nil || errors.Is(err, schemas.ErrUnavailable) {
			return err
		}
		m.noCopies.Store(true)
		// The server may have taken a copy for an empty part, which some do not replace.
		if err := m.abort(ctx); err != nil {
			return err
		}
		if err := m.begin(ctx); err != nil {
			return err
		}
	}
	size := partSize(m.content.Size)
	return m.each(ctx, int(max(1, (m.content.Size+size-1)/size)), func(ctx context.Context, i int) (func() error, error) {
		offset := int64(i) * size
		body, err := m.body(offset, min(size, m.content.Size-offset))
		return func() error { return m.send(ctx, i, body) }, err
	})
}

// each makes the requests of all parts, as many at once as the store's bound leaves. prepare is called in order.
func (m *multipart) each(ctx context.Context, parts int, prepare func(ctx context.Context, i int) (request func() error, err error)) error {
	m.parts = make([]types.CompletedPart, parts)
	group, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		select {
		case m.slots <- struct{}{}:
		case <-ctx.Done():
			return cmp.Or(group.Wait(), coded(ctx, ctx.Err(), m.key))
		}
		request, err := prepare(ctx, i)
		if err != nil {
			<-m.slots
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error {
			defer func() { <-m.slots }()
			return m.gone(m.repeat(ctx, request))
		})
	}
	return group.Wait()
}

// copy stores an object as a part. A server that does not know such a request takes it for one to send an empty part.
func (m *multipart) copy(ctx context.Context, i int, from string) error {
	number := aws.Int32(int32(i + 1))
	out, err := m.client.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
		Bucket: &m.bucket, Key: m.Store.key(m.key), UploadId: m.id, PartNumber: number,
		CopySource: aws.String(escape(m.bucket + "/" + *m.Store.key(from))),
	})
	if a, ok := errors.AsType[smithy.APIError](err); ok && a.ErrorCode() == "NoSuchKey" { // not the upload
		return schemas.Errorf(schemas.CodeInvalidArgument, "s3: %q: %w", from, &cause{err})
	}
	if err != nil {
		return coded(ctx, err, m.key)
	}
	if out.CopyPartResult == nil || aws.ToString(out.CopyPartResult.ETag) == "" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "s3: %q: the server does not copy parts", m.key)
	}
	m.parts[i] = types.CompletedPart{PartNumber: number, ETag: out.CopyPartResult.ETag, ChecksumCRC32: out.CopyPartResult.ChecksumCRC32}
	return nil
}

// escape escapes what a header names, except the slashes. Some servers take a plus for a space.
func escape(name string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(name))
}

// body returns the content of a part. What is slow to read is read once, in order.
func (m *multipart) body(offset, size int64) (*io.SectionReader, error) {
	part := io.NewSectionReader(m.content.Reader, offset, size)
	if !m.content.Slow {
		return part, nil
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(part, data); err != nil {
		return nil, err
	}
	return io.NewSectionReader(bytes.NewReader(data), 0, size), nil
}

func (m *multipart) send(ctx context.Context, i int, body *io.SectionReader) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	number := aws.Int32(int32(i + 1))
	out, err := m.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &m.bucket, Key: m.Store.key(m.key), UploadId: m.id, PartNumber: number, ChecksumAlgorithm: m.checksum,
		Body: body, ContentLength: aws.Int64(body.Size()),
	})
	if err != nil {
		return coded(ctx, err, m.key)
	}
	m.parts[i] = types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32}
	return nil
}

func (m *multipart) complete(ctx context.Context, ifMatch, ifNone *string) (token string, err error) {
	tries := 0
	err = m.repeat(ctx, func() error {
		tries++
		err := throughFolderRaces(func() error {
			out, err := m.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
				Bucket: &m.bucket, Key: m.Store.key(m.key), UploadId: m.id, IfMatch: ifMatch, IfNoneMatch: ifNone,
				MultipartUpload: &types.CompletedMultipartUpload{Parts: m.parts},
			})
			if err == nil {
				token = aws.ToString(out.ETag)
			}
			return err
		})
		return coded(ctx, err, m.key)
	})
	if tries > 1 && errors.Is(err, schemas.ErrNotFound) && (ifMatch != nil || ifNone != nil) {
		// An earlier try, of which the response was lost, may have taken place.
		return "", schemas.Errorf(schemas.CodeConflict, "s3: %q: the upload has ended already", m.key)
	}
	return token, m.gone(err)
}

// gone returns the error of a request for an upload that something else has ended: the caller's next Put begins another one.
func (m *multipart) gone(err error) error {
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Errorf(schemas.CodeUnavailable, "s3: %q: the upload in parts was ended elsewhere", m.key)
	}
	return err
}

// abort removes the parts from the store, also when ctx has ended.
func (m *multipart) abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	err := m.repeat(ctx, func() error { return m.AbortUpload(ctx, m.recorded()) })
	if err == nil {
		objectstore.UploadsOf(ctx).Ended(m.recorded())
	}
	return err
}

// AbortUpload implements [objectstore.Store].
func (s *Store) AbortUpload(ctx context.Context, u objectstore.Upload) error {
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: s.key(u.Key), UploadId: &u.ID})
	if err = coded(ctx, err, u.Key); errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	return err
}
