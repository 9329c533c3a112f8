package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/schemas"
)

// bench is the state that the figures share.
type bench struct {
	dir        string
	made       int
	durability embedded.Durability
	idle       int            // jails for jail.idle
	closers    []func() error // of what the current figure has opened
}

// atEnd calls f after the figure; what is opened last ends first.
func (b *bench) atEnd(f func() error) { b.closers = append(b.closers, f) }

func (b *bench) closeAll() (err error) {
	for _, f := range slices.Backward(b.closers) {
		err = errors.Join(err, f())
	}
	b.closers = nil
	return err
}

// note prints an absolute figure to standard error.
func (b *bench) note(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

// folder creates an empty folder for the current figure.
func (b *bench) folder() (string, error) {
	b.made++
	dir := filepath.Join(b.dir, fmt.Sprint(b.made))
	b.atEnd(func() error { return os.RemoveAll(dir) })
	return dir, os.Mkdir(dir, 0o700)
}

// place is where the NATS server runs.
type place int

const (
	inProcess place = iota // in this process, with client and worker
	overTCP                // in another process; client and worker are in this one
)

// rig is a server, a worker with provider local, and a client.
type rig struct {
	client *client.Client
	worker *events.Conn
	url    string // of the server; empty in this process
}

// token makes the measured connections authenticate, as those of users do.
const token = "bench"

// connect makes the connections of a worker and of a client.
func (b *bench) connect(o events.Options) (worker, caller *events.Conn, c *client.Client, err error) {
	var conns [2]*events.Conn
	for i := range conns {
		if conns[i], err = events.Connect(o); err != nil {
			return nil, nil, nil, err
		}
		b.atEnd(closing(conns[i].Close))
	}
	c, err = client.New(conns[1])
	return conns[0], conns[1], c, err
}

func closing(f func()) func() error { return func() error { f(); return nil } }

func rigAt(at place) func(*bench, context.Context) (*rig, error) {
	return func(b *bench, ctx context.Context) (*rig, error) {
		dir, err := b.folder()
		if err != nil {
			return nil, err
		}
		o := events.Options{}
		if at == inProcess {
			s, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Durability: b.durability})
			if err != nil {
				return nil, err
			}
			b.atEnd(closing(s.Close))
			o.InProcess = s
		} else {
			stop, url, err := b.child(ctx, modeServer, filepath.Join(dir, "nats"))
			if err != nil {
				return nil, err
			}
			b.atEnd(stop)
			o.URL, o.Token = url, token
		}
		conn, _, c, err := b.connect(o)
		if err != nil {
			return nil, err
		}
		n := node.New(node.Config{
			Worker: "bench", Provider: schemas.ProviderLocal, Allowed: []string{schemas.ProviderLocal},
			RunFolder: filepath.Join(dir, "run"), Workspaces: filepath.Join(dir, "ws"), Log: zerolog.Nop(),
		}, conn)
		stop, err := membership.Background(ctx, n.Run)
		if err != nil {
			return nil, err
		}
		b.atEnd(stop)
		return &rig{c, conn, o.URL}, nil
	}
}

// child runs this program as a server and returns its URL. stop ends it.
func (b *bench) child(ctx context.Context, mode, dir string) (stop func() error, url string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	return startServer(ctx, exec.CommandContext(ctx, self, mode, dir, string(b.durability)), "nats://")
}

// startServer starts a server process and returns the URL with this scheme in the first line that it prints. stop ends it.
func startServer(ctx context.Context, cmd *exec.Cmd, scheme string) (stop func() error, url string, err error) {
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	stop = func() error {
		err := cmd.Process.Signal(os.Interrupt)
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // it was interrupted
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("%s did not start: %w", cmd.Path, err), stop())
	}
	for _, word := range strings.Fields(line) {
		if strings.HasPrefix(word, scheme) {
			return stop, strings.TrimSuffix(word, ","), nil
		}
	}
	return stop, "", nil
}

// serve runs a server until it is interrupted. It prints the server's URL.
func serve(mode, dir string, durability embedded.Durability) error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
	if mode == modeBare {
		ns, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
		if err != nil {
			return err
		}
		ns.Start()
		if !ns.ReadyForConnections(10 * time.Second) {
			return errors.New("the bare server did not start")
		}
		fmt.Println(ns.ClientURL())
		<-interrupted
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil
	}
	s, err := embedded.Start(embedded.Config{Dir: dir, Listen: "127.0.0.1:0", Token: token, Durability: durability})
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	<-interrupted
	s.Close()
	return nil
}

// program builds Sluice for the current figure, and returns its path.
func (b *bench) program(ctx context.Context) (string, error) {
	dir, err := b.folder()
	if err != nil {
		return "", err
	}
	sluice := filepath.Join(dir, "sluice")
	build := exec.CommandContext(ctx, "go", "build", "-o", sluice, "./cmd/sluice")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build sluice, which needs the repository's root as the working folder: %w", err)
	}
	return sluice, nil
}

const upRounds = 9

// upReady is the time until `sluice up` on an empty folder accepts commands, over the start of a plain NATS server with JetStream, each
// in its own process.
func upReady(ctx context.Context, b *bench) (float64, error) {
	sluice, err := b.program(ctx)
	if err != nil {
		return 0, err
	}
	// Each server is timed until it has started, and has a folder of its own.
	started := func(start func(dir string) (stop func() error, url string, err error)) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) {
			dir, err := b.folder()
			if err != nil {
				return 0, err
			}
			begin := time.Now()
			stop, _, err := start(filepath.Join(dir, "data"))
			if err != nil {
				return 0, err
			}
			return time.Since(begin).Seconds(), stop()
		}
	}
	ratio, ours, bare, err := compare(ctx, upRounds,
		started(func(dir string) (func() error, string, error) {
			return startServer(ctx, exec.CommandContext(ctx, sluice, "up", "--provider", "local", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", dir), "nats://")
		}),
		started(func(dir string) (func() error, string, error) { return b.child(ctx, modeBare, dir) }))
	if err == nil {
		b.note("sluice up %.0f ms, bare server %.0f ms", 1000*ours, 1000*bare)
	}
	return ratio, err
}
