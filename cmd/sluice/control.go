package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/schemas"
)

// What other commands of this user may ask of the process that holds the data folder, through its control socket. Each request is one
// line, and each answer is one line of JSON.
const (
	askReload = "reload" // read the folder of templates again
	askYield  = "yield"  // give the folder up; the answer comes once it is free
)

const controlSocket = "control.sock"

// Bounds of a request.
const (
	controlTimeout  = 30 * time.Second
	maxControlBytes = 64 << 10
)

// controlReply is the answer to a request.
type controlReply struct {
	Templates int            `json:"templates,omitempty"` // that are in use
	Error     *schemas.Error `json:"error,omitempty"`
}

// ask sends a request to the process that holds the folder, and reads the answer into reply unless that is nil. Errors: unavailable
// where no process answers, those of the answer.
func (f *dataFolder) ask(ctx context.Context, request string, reply *controlReply) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	dir, err := f.runFolder()
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, controlSocket))
	if err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "no worker runs on data folder %s (%w): start one with `sluice up`, or name its folder with --data", f.path, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // it ends the read
	if _, err = io.WriteString(conn, request+"\n"); err == nil {
		var a controlReply
		if err = json.NewDecoder(io.LimitReader(conn, maxControlBytes)).Decode(&a); err == nil {
			if reply != nil {
				*reply = a
			}
			if a.Error != nil {
				return a.Error
			}
			return nil
		}
	}
	return schemas.Errorf(schemas.CodeUnavailable, "the process on data folder %s does not answer: %w", f.path, err)
}

// control answers the requests of other commands of this user.
type control struct {
	listener *net.UnixListener
	// reload reads the templates again, and returns how many there are. Nil where this process has no worker.
	reload func(ctx context.Context) (templates int, err error)
	// yields receives the requests to give the folder up. Nil where this process has a worker.
	yields chan *yieldRequest
}

// reloads are requests to read the templates again, on their way to the worker.
type reloads chan func(templates int, err error)

// ask reloads the templates. Errors: those of the templates, unavailable.
func (r reloads) ask(ctx context.Context) (templates int, err error) {
	done := make(chan struct{})
	select {
	case r <- func(n int, e error) {
		templates, err = n, e
		close(done)
	}:
		<-done
		return templates, err
	case <-ctx.Done():
		return 0, schemas.Errorf(schemas.CodeUnavailable, "the worker is starting or ending: try again")
	}
}

// atHangup reloads the templates at each SIGHUP, until stop.
func (r reloads) atHangup(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, unix.SIGHUP)
	go func() {
		defer close(ended)
		for range hangups {
			_, _ = r.ask(ctx) // the worker logs the outcome
		}
	}()
	return func() {
		signal.Stop(hangups)
		cancel()
		close(hangups)
		<-ended
	}
}

// yieldRequest is a process that waits for the data folder.
type yieldRequest struct{ conn net.Conn }

// done answers that the folder is free.
func (y *yieldRequest) done() {
	_ = json.NewEncoder(y.conn).Encode(controlReply{}) // it may have left
	_ = y.conn.Close()
}

// listenUnix opens a socket that only this user can open. The folder's lock is held: whichever process made the socket before has ended.
func listenUnix(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "remove the socket of an earlier sluice: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "listen for other commands: %w", err)
	}
	return l, nil
}

func openControl(runFolder string) (*control, error) {
	l, err := listenUnix(filepath.Join(runFolder, controlSocket))
	if err != nil {
		return nil, err
	}
	return &control{listener: l}, nil
}

// run answers requests until ctx ends.
func (c *control) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { _ = c.listener.Close() })() // it ends Accept
	for {
		conn, err := shortage.Accept(c.listener)
		if err != nil {
			return nil // closed
		}
		wg.Go(func() { c.serve(ctx, conn) })
	}
}

func (c *control) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })() // it ends a read
	line, err := bufio.NewReader(io.LimitReader(conn, maxControlBytes)).ReadString('\n')
	if err != nil {
		_ = conn.Close()
		return
	}
	var a controlReply
	switch request := strings.TrimSpace(line); {
	case request == askYield && c.yields != nil:
		select {
		case c.yields <- &yieldRequest{conn}:
			return
		case <-ctx.Done():
			a.Error = schemas.Errorf(schemas.CodeUnavailable, "process %d is ending", os.Getpid())
		}
	case request == askReload && c.reload != nil:
		if a.Templates, err = c.reload(ctx); err != nil {
			a.Error = schemas.AsError(err)
		}
	default:
		a.Error = schemas.Errorf(schemas.CodeUnavailable, "process %d has no worker", os.Getpid())
	}
	_ = json.NewEncoder(conn).Encode(a) // the other command may have left
	_ = conn.Close()
}

func reloadCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "reload",
		Short: "Reload the templates of the worker on this data folder",
		Long: `Reload the folder of templates of the "sluice up" or "sluice worker" on this data folder, with the
command policies in it, and the file of --allow. With an error in any file, the templates and lists
in use stay. Sessions that exist keep their template.`,
		Example: `  sluice template check templates/ && sluice reload
  sluice reload --data /var/lib/sluice`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := openFolder(g.data)
			if err != nil {
				return err
			}
			var a controlReply
			if err := dir.ask(cmd.Context(), askReload, &a); err != nil {
				return err
			}
			if asJSON {
				return g.printJSON(a)
			}
			_, err = fmt.Fprintf(g.Stdout, "reloaded: %d templates\n", a.Templates)
			return err
		},
	}
	jsonFlag(c, &asJSON, "one JSON object")
	return c
}
