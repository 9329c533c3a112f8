package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

// parking is a template store whose template parks a session soon after its last command.
type parking struct{ after time.Duration }

// Template returns the same template for every name.
func (p parking) Template(string) (*schemas.Template, error) {
	return &schemas.Template{Name: "default", Session: schemas.TemplateSession{ParkAfterMS: p.after.Milliseconds()}}, nil
}

// testbed is a server on TCP with a worker, a client and a plain connection, all in this process.
type testbed struct {
	client *client.Client
	conn   *events.Conn
	nats   *nats.Conn
}

// testbed makes a testbed in a folder.
func (b *bench) testbed(ctx context.Context, provider sandbox.Provider, dir string, park time.Duration) (*testbed, error) {
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0", Token: token, Durability: b.durability})
	if err != nil {
		return nil, err
	}
	b.atEnd(closing(server.Close))
	plain, err := nats.Connect(server.URL(), nats.Token(token))
	if err != nil {
		return nil, err
	}
	b.atEnd(closing(plain.Close))
	conn, caller, c, err := b.connect(events.Options{URL: server.URL(), Token: token})
	if err != nil {
		return nil, err
	}
	if err := conn.Ensure(ctx, events.Topology{Room: server.Room() / 10 * 9}); err != nil {
		return nil, err
	}
	member, err := membership.Join(ctx, conn, processor.Config{
		Worker: "bench", Templates: parking{park}, Workspaces: filepath.Join(dir, "ws"), StopGrace: time.Second, SweepEvery: 100 * time.Millisecond,
		Providers: map[string]sandbox.Provider{provider.Name(): provider}, DefaultProvider: provider.Name(),
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	stopWorker, err := member.Start(ctx)
	if err != nil {
		return nil, err
	}
	b.atEnd(closing(func() { _ = stopWorker() })) // its error is that of the lease's release
	return &testbed{client: c, conn: caller, nats: plain}, nil
}

// localTestbed makes a testbed with provider local, whose sessions park that soon after their last command.
func localTestbed(park time.Duration) func(*bench, context.Context) (*testbed, error) {
	return func(b *bench, ctx context.Context) (*testbed, error) {
		dir, err := b.folder()
		if err != nil {
			return nil, err
		}
		p, err := local.New(local.Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
		if err != nil {
			return nil, err
		}
		b.atEnd(p.Close)
		return b.testbed(ctx, p, dir, park)
	}
}

const createRounds = 5

// sessionCreate is the p50 of the time to create a session of a new thread, while that many users do so at once, in milliseconds. The
// sandbox is started by the first command and does not count.
func sessionCreate(users int) measurement {
	return with(localTestbed(0), func(ctx context.Context, _ *bench, d *testbed) (float64, error) {
		var mu sync.Mutex
		var all []float64
		for round := range createRounds + 1 {
			group, ctx := errgroup.WithContext(ctx)
			for u := range users {
				group.Go(func() error {
					begin := time.Now()
					_, created, err := d.client.CreateSession(ctx, client.SessionRequest{Thread: fmt.Sprintf("r%d-u%d", round, u)})
					if err == nil && !created {
						err = errors.New("the session existed already, want a new one")
					}
					mu.Lock()
					defer mu.Unlock()
					if round > 0 { // the first round warms up
						all = append(all, float64(time.Since(begin))/float64(time.Millisecond))
					}
					return err
				})
			}
			if err := group.Wait(); err != nil {
				return 0, err
			}
		}
		return median(all), nil
	})
}

// sessionReuse is the time of get-or-create of an existing session, over that of a NATS request-reply with the same two connections.
func sessionReuse(ctx context.Context, b *bench, d *testbed) (float64, error) {
	echo, err := nats.Connect(d.nats.ConnectedUrl(), nats.Token(token))
	if err != nil {
		return 0, err
	}
	defer echo.Close()
	if _, err := echo.Subscribe("bench.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return 0, err
	}
	if err := echo.Flush(); err != nil {
		return 0, err
	}
	ask := func(ctx context.Context) error {
		_, err := d.nats.RequestWithContext(ctx, "bench.echo", []byte(`{"thread":"reuse"}`))
		return err
	}
	reuse := func(ctx context.Context) error {
		_, _, err := d.client.CreateSession(ctx, client.SessionRequest{Thread: "reuse"})
		return err
	}
	ours, bare := side{"session reuse", 500, timed(reuse)}, side{"request-reply", 500, timed(ask)}
	for _, warm := range []side{ours, bare} {
		if _, err := warm.p50(ctx); err != nil {
			return 0, err
		}
	}
	return b.turns(ctx, latencyRounds, ours, bare)
}

// parkedSessions is the number of sessions that are parked: 1,500, or 10,000 with SLUICE_LONG.
func parkedSessions() int {
	if os.Getenv("SLUICE_LONG") != "" {
		return 10_000
	}
	return 1500
}

// sessionParked is the memory of a parked session in this process, which is server, worker and client. Each session has run one
// command.
func sessionParked(ctx context.Context, b *bench, d *testbed) (float64, error) {
	run := func(ctx context.Context, from, to int) error {
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(4)
		for i := from; i < to; i++ {
			group.Go(func() error { return sluiceTrue(d.client, fmt.Sprint("parked-", i))(groupCtx) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for {
			parked := 0
			if err := d.conn.Caller().Sessions(ctx, schemas.DefaultTenant, func(s *schemas.Session) error {
				if s.Parked && s.State == schemas.SandboxCompleted {
					parked++
				}
				return nil
			}); err != nil || parked == to {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	const warm = 200
	if err := run(ctx, 0, warm); err != nil {
		return 0, err
	}
	before, err := resident()
	if err != nil {
		return 0, err
	}
	n := parkedSessions()
	begin := time.Now()
	if err := run(ctx, warm, warm+n); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	after, err := resident()
	if err != nil {
		return 0, err
	}
	begin = time.Now()
	if err := sluiceTrue(d.client, "parked-0")(ctx); err != nil {
		return 0, err
	}
	b.note("%d sessions created and parked in %.1f s, %.1f MB in all; one woken in %.1f ms", n, took.Seconds(), (after-before)/1e6, time.Since(begin).Seconds()*1000)
	return (after - before) / float64(n), nil
}

// resident is the resident memory of this process after a garbage collection, in bytes.
func resident() (float64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm is %q, want at least two fields", b)
	}
	pages, err := strconv.ParseFloat(string(fields[1]), 64)
	return pages * float64(os.Getpagesize()), err
}

// sessionRounds is the number of containers of each kind.
const sessionRounds = 8

// sessionDocker is the time to create and start a container, over that to create a session with a sandbox from a warm pool.
func sessionDocker(ctx context.Context, b *bench, c *containers) (float64, error) {
	ready, err := c.startPool(ctx, b, filepath.Join(c.dir, "ws", ".pool"), sessionRounds)
	if err != nil {
		return 0, err
	}
	d, err := b.testbed(ctx, ready, c.dir, 0)
	if err != nil {
		return 0, err
	}
	plain, err := side{"docker create and start", sessionRounds, c.create(nothing)}.p50(ctx)
	if err != nil {
		return 0, err
	}
	created := 0
	session := func(ctx context.Context) (time.Duration, error) {
		for ready.Stats().Ready < sessionRounds/2 {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
		created++
		begin := time.Now()
		_, _, err := d.client.CreateSession(ctx, client.SessionRequest{Thread: fmt.Sprint("docker-", created), Start: true})
		return time.Since(begin), err
	}
	ours, err := side{"session with a container of the pool", sessionRounds, session}.p50(ctx)
	if err == nil {
		b.note("session with a container of the pool: %.1f ms, docker create and start: %.1f ms (p50)", ours, plain)
	}
	return plain / ours, err
}
