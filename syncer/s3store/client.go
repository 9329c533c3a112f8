package s3store

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

func newHTTPClient(idle time.Duration) aws.HTTPClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
		t.WriteBufferSize, t.ReadBufferSize = 128<<10, 128<<10
		t.ResponseHeaderTimeout = idle
		t.DisableCompression = true
		dial := t.DialContext
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &activeConn{Conn: conn, idle: idle}, nil
		}
	})
}

// activeConn is a connection that fails when nothing is sent or received for a time, however long a request takes in all: progress
// in one direction keeps the other waiting.
type activeConn struct {
	net.Conn
	idle time.Duration
	set  atomic.Int64 // when the deadline was set, in nanoseconds since 1970
}

// active moves the deadline. It does so rarely: each time costs as much as a small read.
func (c *activeConn) active() error {
	now := time.Now()
	if was := c.set.Load(); now.Sub(time.Unix(0, was)) < c.idle/8 {
		return nil
	}
	c.set.Store(now.UnixNano())
	return c.SetDeadline(now.Add(c.idle))
}

// Read implements [net.Conn].
func (c *activeConn) Read(p []byte) (n int, err error) {
	if err := c.active(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements [net.Conn].
func (c *activeConn) Write(p []byte) (n int, err error) {
	if err := c.active(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
