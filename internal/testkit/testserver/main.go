package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	mode := flag.String("mode", "well", "")
	var echo []string
	flag.Func("echo", "", func(address string) error {
		echo = append(echo, address)
		return nil
	})
	host, port := flag.String("host", "", ""), flag.String("port", "", "")
	flag.Bool("no-token", false, "")
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "server" {
		args = args[1:]
	}
	_ = flag.CommandLine.Parse(args) // it exits
	address := flag.Arg(0)
	if *port != "" {
		address = net.JoinHostPort(*host, *port)
	}
	if err := run(*mode, echo, address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(mode string, echo []string, address string) error {
	if mode == "child" { // it ignores every request to end
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		time.Sleep(time.Hour)
	}
	for _, at := range echo {
		l, err := listen(at)
		if err != nil {
			return err
		}
		go serveEcho(l)
	}
	l, err := listen(address)
	if err != nil {
		return err
	}
	s := &server{}
	s.mode.Store(&mode)
	fmt.Println("listening on", address, "as", os.Getpid())
	return (&http.Server{Handler: s, ReadHeaderTimeout: time.Minute}).Serve(l)
}

func listen(address string) (net.Listener, error) {
	if strings.HasPrefix(address, "/") {
		return net.Listen("unix", address)
	}
	return net.Listen("tcp", address)
}

func serveEcho(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		}()
	}
}

type server struct{ mode atomic.Pointer[string] }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		mode := strings.TrimPrefix(r.URL.Path, "/")
		s.mode.Store(&mode)
		fmt.Println("mode", mode)
		switch mode {
		case "die":
			os.Exit(3)
		case "leak":
			cmd := exec.Command(os.Args[0], "--mode", "child")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			fmt.Fprintln(w, cmd.Process.Pid)
		case "freeze":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		return
	}
	switch *s.mode.Load() {
	case "never", "sick":
		http.Error(w, "not healthy", http.StatusServiceUnavailable)
	case "silent":
		<-r.Context().Done()
	case "slow":
		time.Sleep(time.Second)
		fmt.Println("answered slowly")
	case "redirect":
		http.Redirect(w, r, "/health", http.StatusFound)
	case "endless":
		for err := error(nil); err == nil; {
			_, err = io.WriteString(w, strings.Repeat("x", 64<<10))
		}
	case "headers":
		if err := sendHeaders(w); err != nil {
			fmt.Println("headers:", err)
		}
	}
}

// sendHeaders sends headers for ever.
func sendHeaders(w http.ResponseWriter) error {
	h, ok := w.(http.Hijacker)
	if !ok {
		return errors.ErrUnsupported
	}
	conn, buf, err := h.Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	out := bufio.NewWriter(conn)
	_, err = buf.WriteString("HTTP/1.1 200 OK\r\n")
	for err = errors.Join(err, buf.Flush()); err == nil; {
		_, err = out.WriteString("X-More: " + strings.Repeat("x", 1000) + "\r\n")
	}
	return err
}
