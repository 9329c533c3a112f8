package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "github.com/rclone/rclone/backend/local"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/serve/s3"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// The server's credentials and its bucket.
const (
	AccessKey = "sluice-test"
	SecretKey = "sluice-test-secret"
	Bucket    = "workspaces"
)

// Kind is a program that is an S3 server.
type Kind string

// The servers.
const (
	Versity Kind = "versitygw"
	Rclone  Kind = "rclone"
	// Moto is moto_server, the program that SLUICE_MOTO names. It keeps its data in memory.
	Moto Kind = "moto"
)

const (
	envDir  = "SLUICE_GATEWAY_DIR"
	envAddr = "SLUICE_GATEWAY_ADDR"
	envKind = "SLUICE_GATEWAY_KIND"
	envMoto = "SLUICE_MOTO"
)

// Main runs the server when Start has started this process for it, and then does not return. Call it first in main or
// TestMain.
func Main() {
	dir := os.Getenv(envDir)
	if dir == "" {
		return
	}
	if err := serve(Kind(os.Getenv(envKind)), dir, os.Getenv(envAddr)); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(kind Kind, dir, addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// The parent's end of this pipe closes when the parent ends, however it ends.
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	if kind == Rclone {
		go func() {
			<-ctx.Done()
			os.Exit(0)
		}()
		os.Args = []string{"rclone", "serve", "s3", dir, "--config", "", "--addr", addr, "--auth-key", AccessKey + "," + SecretKey,
			"--vfs-cache-mode", "off", "--log-level", "EMERGENCY"}
		cmd.Main()
		return nil
	}
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
	Kind     Kind
	Endpoint string // its URL
	Dir      string // the folder of the bucket; Moto has none
	cmd      *exec.Cmd
	stop     func() error
}

// Start runs a server on a free port, with its data under dir, and returns when it accepts connections.
func Start(kind Kind, dir string) (*Server, error) {
	if err := os.MkdirAll(filepath.Join(dir, Bucket), 0o755); err != nil {
		return nil, err
	}
	port, release, err := testkit.ReservePort(context.Background())
	if err != nil {
		return nil, err
	}
	defer release() // it listens by then
	addr := fmt.Sprint("127.0.0.1:", port)
	child, err := command(kind, dir, addr)
	if err != nil {
		return nil, err
	}
	in, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	s := &Server{Kind: kind, Endpoint: "http://" + addr, Dir: filepath.Join(dir, Bucket), cmd: child, stop: in.Close}
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return s, errors.Join(conn.Close(), s.makeBucket())
		}
		if time.Now().After(deadline) {
			_ = s.Stop()
			return nil, fmt.Errorf("gateway: no connection to %s: %w", addr, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// HasMoto reports whether there is a program for [Moto].
func HasMoto() bool { return os.Getenv(envMoto) != "" }

func command(kind Kind, dir, addr string) (*exec.Cmd, error) {
	if kind == Moto {
		host, port, err := net.SplitHostPort(addr)
		return exec.Command(os.Getenv(envMoto), "-H", host, "-p", port), err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), envDir+"="+dir, envAddr+"="+addr, envKind+"="+string(kind))
	child.Stderr = os.Stderr
	return child, nil
}

// makeBucket makes the bucket of a server that has no folder for it.
func (s *Server) makeBucket() error {
	if s.Kind != Moto {
		return nil
	}
	r, err := http.NewRequest(http.MethodPut, s.Endpoint+"/"+Bucket, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
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
