package client

import (
	"context"
	"errors"
	"net"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/schemas"
)

// Forward connects conn to a TCP port on the loopback interface of a thread's sandbox, and copies in both directions until both have ended, or
// ctx ends. It closes conn. Errors: not_found when nothing listens on the port, or the thread has no session or no sandbox that runs;
// unavailable when the connection was cut, such as by the end of its worker.
func (c *Client) Forward(ctx context.Context, thread string, port int, conn net.Conn) error {
	err := schemas.CheckID("thread", thread)
	if err == nil && (port < 1 || port > 65535) {
		err = schemas.Errorf(schemas.CodeInvalidArgument, "port %d is not between 1 and 65535", port)
	}
	if err != nil {
		_ = conn.Close()
		return err
	}
	return c.caller.Connect(ctx, c.tenant, thread, int64(port), conn)
}

// ForwardAll forwards each connection that l accepts to a port, as [Client.Forward], until ctx ends or l fails; it closes l and every
// connection. failed is called with the error of each that was cut or could not be made. Errors: those of l.
func (c *Client) ForwardAll(ctx context.Context, l net.Listener, thread string, port int, failed func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{}, maxForwarded)
	defer func() {
		cancel()
		for range cap(done) {
			done <- struct{}{} // each one has given its place back
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	for {
		select {
		case done <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := shortage.Accept(l)
		if err != nil {
			<-done
			if ctx.Err() != nil {
				return nil
			}
			return schemas.Errorf(schemas.CodeUnavailable, "accept: %w", err)
		}
		go func() {
			defer func() { <-done }()
			if err := c.Forward(ctx, thread, port, conn); err != nil && !errors.Is(err, ctx.Err()) {
				failed(err)
			}
		}()
	}
}

// maxForwarded is how many connections ForwardAll has at a time; more wait to be accepted.
const maxForwarded = 256
