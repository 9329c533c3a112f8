package s3test

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// Uploads lists the uploads in parts that are under way in a bucket below a prefix, with keys relative to it.
func Uploads(ctx context.Context, endpoint, bucket, prefix string) (all []objectstore.Upload, err error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle, o.HTTPClient = &endpoint, true, &http.Client{Transport: transport}
	})
	pages := s3.NewListMultipartUploadsPaginator(client, &s3.ListMultipartUploadsInput{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range page.Uploads {
			if key, ok := strings.CutPrefix(aws.ToString(u.Key), prefix+"/"); ok {
				all = append(all, objectstore.Upload{Key: key, ID: aws.ToString(u.UploadId)})
			}
		}
	}
	return all, nil
}
