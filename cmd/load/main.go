package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context) (err error) {
	l := newLoad()
	sluice := flag.String("sluice", "bin/sluice", "`PROGRAM` whose server is loaded")
	provider := flag.String("provider", "auto", "`PROVIDER` of the server's sandboxes")
	flag.StringVar(&l.url, "url", "", "`URL` of a gateway that runs already, with LOAD_TOKEN; default: a server is started")
	flag.DurationVar(&l.duration, "duration", l.duration, "how long commands, file operations and churn go on")
	flag.Parse()
	l.token = os.Getenv("LOAD_TOKEN")
	if l.url == "" {
		s, err := startServer(*sluice, *provider)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.end(err != nil)) }()
		l.url, l.token = s.url, s.token
	}
	if err := l.run(ctx); err != nil {
		return err
	}
	return l.report(os.Stdout)
}

// server is a `sluice up` of this program.
type server struct {
	cmd        *exec.Cmd
	dir        string
	log        bytes.Buffer
	url, token string
}

// serverPatience is how long a server may take to start.
const serverPatience = time.Minute

// startServer starts a server on an empty folder.
func startServer(program, provider string) (*server, error) {
	dir, err := os.MkdirTemp("", "slload")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	s.cmd = exec.Command(program, "up", "--provider", provider, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	s.cmd.Stderr = &s.log
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s, which `make build` builds: %w", program, err), os.RemoveAll(dir))
	}
	late := time.AfterFunc(serverPatience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewReader(out)
	for s.url == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s did not start: %w", program, err), s.end(true))
		}
		if _, url, ok := strings.Cut(line, ", HTTP "); ok {
			s.url, _, _ = strings.Cut(strings.TrimSpace(url), " ")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // until the server ends
	token, err := os.ReadFile(filepath.Join(dir, "data", "token"))
	if err != nil {
		return nil, errors.Join(err, s.end(true))
	}
	s.token = strings.TrimSpace(string(token))
	return s, nil
}

// end ends the server and removes its folder. With show it prints what the server has logged last.
func (s *server) end(show bool) error {
	err := s.cmd.Process.Signal(os.Interrupt)
	late := time.AfterFunc(serverPatience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	err = cmp.Or(err, s.cmd.Wait())
	if log := s.log.Bytes(); show || err != nil {
		fmt.Fprintf(os.Stderr, "the server logged last:\n%s\n", log[max(0, len(log)-4096):])
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
