package s3store

import (
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/sluice-dev/sluice/syncer/objectstore"
)

// counting counts the requests of each context.
type counting struct{ aws.HTTPClient }

// Do implements [aws.HTTPClient].
func (c counting) Do(r *http.Request) (*http.Response, error) {
	t := objectstore.TrafficOf(r.Context())
	t.Requests.Add(1)
	t.Sent.Add(max(0, r.ContentLength))
	response, err := c.HTTPClient.Do(r)
	if err == nil {
		response.Body = countedBody{response.Body, t}
	}
	return response, err
}

type countedBody struct {
	io.ReadCloser
	traffic *objectstore.Traffic
}

// Read implements [io.Reader].
func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.traffic.Received.Add(int64(n))
	return n, err
}
