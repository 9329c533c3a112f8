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
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/cmd/internal/node"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/schemas"
)

// bench is the state that the figures share.
type bench struct {
	dir        string
	made       int
	durability embedded.Durability
	idle       int // jails for jail.idle
}

// note prints an absolute figure to standard error.
func (b *bench) note(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

// folder creates an empty folder.
func (b *bench) folder() (string, error) {
	b.made++
	dir := filepath.Join(b.dir, fmt.Sprint(b.made))
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
	stop   func() error
}

// token makes the measured connections authenticate, as those of users do.
const token = "bench"

func (b *bench) rig(ctx context.Context, at place) (*rig, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	o := events.Options{Token: token}
	var stopServer func() error
	if at == inProcess {
		s, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Durability: b.durability})
		if err != nil {
			return nil, err
		}
		o.InProcess, o.Token = s, ""
		stopServer = func() error { s.Close(); return nil }
	} else {
		c, url, err := b.child(ctx, modeServer, filepath.Join(dir, "nats"))
		if err != nil {
			return nil, err
		}
		o.URL, stopServer = url, c
	}
	workerConn, err := events.Connect(o)
	if err != nil {
		return nil, errors.Join(err, stopServer())
	}
	clientConn, err := events.Connect(o)
	if err != nil {
		return nil, errors.Join(err, stopServer())
	}
	cl, err := client.New(clientConn)
	if err != nil {
		return nil, errors.Join(err, stopServer())
	}
	n := node.New(node.Config{
		Worker: "bench", Provider: schemas.ProviderLocal, Allowed: []string{schemas.ProviderLocal},
		RunFolder: filepath.Join(dir, "run"), Workspaces: filepath.Join(dir, "ws"), Log: zerolog.Nop(),
	}, workerConn)
	runCtx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- n.Run(runCtx, func() { close(ready) }) }()
	stop := func() error {
		cancel()
		err := <-ended
		clientConn.Close()
		workerConn.Close()
		return errors.Join(err, stopServer(), os.RemoveAll(dir))
	}
	select {
	case <-ready:
		return &rig{client: cl, worker: workerConn, stop: stop}, nil
	case err := <-ended:
		ended <- nil
		return nil, errors.Join(err, stop())
	}
}

// child runs this program as a server and returns its URL. stop ends it.
func (b *bench) child(ctx context.Context, mode, dir string) (stop func() error, url string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	return startServer(ctx, exec.CommandContext(ctx, self, mode, dir, string(b.durability)))
}

// startServer starts a server process and returns the URL in the first line that it prints. stop ends it.
func startServer(ctx context.Context, cmd *exec.Cmd) (stop func() error, url string, err error) {
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
		if strings.HasPrefix(word, "nats://") {
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
