package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"testing"

	nats "github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// natsServer starts a NATS server on loopback.
func natsServer(t *testing.T, o *nats.Options) *nats.Server {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog, o.StoreDir, o.JetStreamMaxStore = "127.0.0.1", -1, true, true, t.TempDir(), cmp.Or(o.JetStreamMaxStore, 16<<30)
	s, err := nats.NewServer(o)
	testkit.Must(t, err)
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	s.Start()
	if !s.ReadyForConnections(testkit.Timeout) {
		t.Fatal("the server does not start")
	}
	return s
}

// worker runs `sluice worker` in this process until the test ends, waits until it is up, and returns its log.
func (c *cli) worker(flags ...string) *buffer {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	log, ended := &buffer{}, make(chan int, 1)
	go func() {
		m := &Main{Args: c.args(append([]string{"worker", "--provider", "local", "--grace", "1s"}, flags...)), Stdout: write, Stderr: log, Getenv: c.getenv}
		code := m.Run(ctx)
		_ = write.Close()
		ended <- code
	}()
	c.t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 || c.t.Failed() {
			c.t.Errorf("sluice worker: exit code %d, want 0; it logged:\n%s", code, log)
		}
	})
	if line, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		c.t.Fatalf("the worker printed %q: %v\n%s", line, err, log)
	}
	return log
}

// TestWorkerSaysWhatItTook starts a worker on a server whose store is smaller than the default sizes. Ten minutes 14.
func TestWorkerSaysWhatItTook(t *testing.T) {
	s := natsServer(t, &nats.Options{JetStream: true, JetStreamMaxStore: 4 << 30})
	c := newCLI(t)
	c.env["SLUICE_NATS_URL"] = s.ClientURL()
	log := c.worker().String()
	testkit.Contains(t, "log", log, "streams are smaller than by default")
	testkit.Contains(t, "log", log, `"log_bytes":2147483648`)
	c.exec("--", "echo", "one").check(t).exits(0).prints("one\n")
}

// TestWorkerBehindALeafNode runs a worker on a leaf node, with the streams in the domain of the hub, and clients on both. Ten
// minutes 14.
func TestWorkerBehindALeafNode(t *testing.T) {
	for name, leafStreams := range map[string]bool{"leaf without JetStream": false, "leaf with a domain of its own": true} {
		t.Run(name, func(t *testing.T) {
			port := testkit.FreePort(t)
			hub := natsServer(t, &nats.Options{
				JetStream: true, JetStreamDomain: "hub", LeafNode: nats.LeafNodeOpts{Host: "127.0.0.1", Port: port},
			})
			at := &url.URL{Scheme: "nats-leaf", Host: fmt.Sprint("127.0.0.1:", port)}
			o := &nats.Options{LeafNode: nats.LeafNodeOpts{Remotes: []*nats.RemoteLeafOpts{{URLs: []*url.URL{at}}}}}
			if leafStreams {
				o.JetStream, o.JetStreamDomain = true, "leaf"
			}
			leaf := natsServer(t, o)

			c, guest := newCLI(t), newCLI(t)
			c.env["SLUICE_NATS_URL"] = leaf.ClientURL()
			guest.env["SLUICE_NATS_URL"] = hub.ClientURL()
			c.env["SLUICE_TEMPLATES"], _ = c.templates("name: talk\nagent: {command: [cat]}\n")
			for _, wrong := range []string{"none", ""} {
				c.env["SLUICE_JS_DOMAIN"] = wrong
				if wrong != "" || !leafStreams { // else the leaf has streams of its own
					c.run("status").check(t).exits(schemas.ExitSluiceFailed).reports("--js-domain")
				}
			}
			c.env["SLUICE_JS_DOMAIN"] = "hub"
			c.worker()
			if leafStreams {
				state, err := leaf.Jsz(nil)
				testkit.Must(t, err)
				testkit.Equal(t, "streams on the leaf", state.Streams, 0)
			}
			for _, caller := range []*cli{c, guest} {
				caller.exec("--key", "k"+caller.data, "--", "sh", "-c", "cat; echo two >&2").check(t).exits(0)
				process := caller.exec("--json", "--", "echo", "one").result(t).Process
				caller.run("logs", "--thread", "t1", process).check(t).exits(0).prints("one\n")
				caller.run("session", "list").check(t).exits(0).printsPart("t1")
				caller.run("message", "--thread", "t2", "--template", "talk", "hello").check(t).exits(0).printsPart("hello")
				caller.run("messages", "--thread", "t2").check(t).exits(0).printsPart("hello")
				caller.run("status").check(t).exits(0).printsPart("alive")
				caller.run("session", "stop", "-t", "t1", "--grace", "0s").check(t).exits(0)
				caller.run("session", "get", "-t", "t1").wantError(t, schemas.CodeNotFound)
			}
		})
	}
}
