package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// The server's credentials and its bucket.
const (
	AccessKey = "sluice-test"
	SecretKey = "sluice-test-secret"
	Bucket    = "workspaces"
)

const (
	envDir  = "SLUICE_GATEWAY_DIR"
	envAddr = "SLUICE_GATEWAY_ADDR"
)

// Main runs the server when Start has started this process for it, and then does not return. Call it first in main or
// TestMain.
func Main() {
	dir := os.Getenv(envDir)
	if dir == "" {
		return
	}
	if err := serve(dir, os.Getenv(envAddr)); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(dir, addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// The parent's end of this pipe closes when the parent ends, however it ends.
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	be, err := posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{CopyObjectThreshold: 5 << 30})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, be, &embedgw.Config{
		RootUserAccess: AccessKey, RootUserSecret: SecretKey, Ports: []string{addr},
		MaxConnections: 4096, MaxRequests: 4096, MultipartMaxParts: 10000, Quiet: true, KeepAlive: true,
	})
}

// Server is a running server.
type Server struct {
	Endpoint string // its URL
	Dir      string // the folder of the bucket
	cmd      *exec.Cmd
	stop     func() error
}

// Start runs the server on a free port, with its data under dir, and returns when it accepts connections.
func Start(dir string) (*Server, error) {
	if err := os.MkdirAll(filepath.Join(dir, Bucket), 0o755); err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envDir+"="+dir, envAddr+"="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{Endpoint: "http://" + addr, Dir: filepath.Join(dir, Bucket), cmd: cmd, stop: in.Close}
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return s, conn.Close()
		}
		if time.Now().After(deadline) {
			_ = s.Stop()
			return nil, fmt.Errorf("gateway: no connection to %s: %w", addr, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop kills the server and waits for it. A graceful shutdown would wait for idle connections.
func (s *Server) Stop() error {
	_ = s.stop()
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.cmd.Wait() // it reports the kill
	return nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
