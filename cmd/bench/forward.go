package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/client"
)

// The bytes of a round.
const (
	forwardRounds = 3
	forwardBytes  = 1 << 30
)

// forwardPort is the MB/s of 1 GiB from a server in a sandbox through a forwarded port, over those through a plain TCP proxy in Go.
func forwardPort(ctx context.Context, b *bench, r *rig) (float64, error) {
	if _, _, err := r.client.CreateSession(ctx, client.SessionRequest{Thread: "forward", Start: true}); err != nil {
		return 0, err
	}
	server, err := serveBytes(b)
	if err != nil {
		return 0, err
	}
	forwarded, err := listenLoopback(b)
	if err != nil {
		return 0, err
	}
	proxy, err := listenLoopback(b)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	defer proxy.Close()
	serving.Go(func() {
		_ = r.client.ForwardAll(ctx, forwarded, "forward", server.Port, func(err error) { b.note("forward: %v", err) })
	})
	serving.Go(func() { serveProxy(proxy, server.String()) })
	ratio, speed, plain, err := compare(ctx, forwardRounds,
		func(context.Context) (float64, error) { return download(forwarded.Addr().String()) },
		func(context.Context) (float64, error) { return download(proxy.Addr().String()) })
	if err == nil {
		b.note("forwarded %.0f MB/s, plain proxy %.0f MB/s", speed, plain)
	}
	return ratio, err
}

func listenLoopback(b *bench) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		b.atEnd(func() error { _ = l.Close(); return nil }) // it may be closed already
	}
	return l, err
}

// serveBytes sends each connection the bytes of a round.
func serveBytes(b *bench) (*net.TCPAddr, error) {
	l, err := listenLoopback(b)
	if err != nil {
		return nil, err
	}
	go func() {
		p := make([]byte, 256<<10)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for sent := 0; sent < forwardBytes && err == nil; sent += len(p) {
					_, err = conn.Write(p)
				}
			}()
		}
	}()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("%v is no TCP address", l.Addr())
	}
	return addr, nil
}

// serveProxy is the baseline: it copies both ways, as Go does, which is by splice on Linux.
func serveProxy(l net.Listener, to string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer server.Close()
			go func() { _, _ = io.Copy(server, conn) }()
			_, _ = io.Copy(conn, server) // a short copy shows in the number of bytes
		}()
	}
}

// download reads a round's bytes, in MB/s.
func download(address string) (float64, error) {
	begin := time.Now()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	n, err := io.Copy(io.Discard, conn)
	if err == nil && n != forwardBytes {
		err = fmt.Errorf("got %d bytes, want %d", n, forwardBytes)
	}
	return megabytes(n, begin), err
}
