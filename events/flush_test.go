package events

import (
	"bufio"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// busyServer answers each ping after the first once it has sent a message a second for a while, and not at all without messages.
func busyServer(conn net.Conn, messages int) {
	pings := make(chan struct{}, 64)
	go func() {
		defer close(pings)
		for in := bufio.NewScanner(conn); in.Scan(); {
			if in.Text() == "PING" {
				pings <- struct{}{}
			}
		}
	}()
	write := func(s string) { _, _ = io.WriteString(conn, s) } // the client has left
	write("INFO {\"server_id\":\"s\",\"version\":\"2.12.0\",\"max_payload\":1048576,\"headers\":true}\r\n")
	<-pings
	write("PONG\r\n")
	for range pings {
		for range messages {
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			write("MSG output 1 1\r\nx\r\n")
		}
		if messages > 0 {
			write("PONG\r\n")
		}
	}
}

// The first bytes of a connection to a port, and a follower, come behind the output of others, which may take longer than one publish.
func TestSubscriptionWaitsBehindOutput(t *testing.T) {
	for _, tt := range []struct {
		name     string
		messages int
		want     time.Duration
		code     schemas.Code
	}{
		{"busy", 12, 12 * time.Second, ""},
		{"silent", 0, publishTimeout, schemas.CodeDeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				served := make(chan struct{})
				go func() {
					defer close(served)
					busyServer(server, tt.messages)
				}()
				nc, err := nats.Connect("nats://127.0.0.1", nats.SetCustomDialer(dialer(func() (net.Conn, error) { return client, nil })), nats.NoReconnect())
				defer func() {
					nc.Close()
					_ = server.Close()
					<-served
				}()
				testkit.Must(t, err)
				begun := time.Now()
				err = flushSubscriptions(t.Context(), nc)
				if tt.code == "" {
					testkit.Must(t, err)
				} else {
					testkit.WantCode(t, wrap(err, "flush"), tt.code)
				}
				testkit.Equal(t, "time", time.Since(begun), tt.want)
			})
		})
	}
}
