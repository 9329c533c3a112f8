package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// gatewayProcess is a gateway in a process of its own, at the server of a rig.
type gatewayProcess struct {
	*web
	pid int
}

// gatewayRig is a rig with `sluice gateway`.
func (b *bench) gatewayRig(ctx context.Context) (*gatewayProcess, error) {
	r, err := rigAt(overTCP)(b, ctx)
	if err != nil {
		return nil, err
	}
	secret, _, err := client.NewTokens(r.client).Create(ctx, client.TokenRequest{Name: "bench", Scope: schemas.ScopeExec, Limits: &schemas.TokenLimits{}})
	if err != nil {
		return nil, err
	}
	sluice, err := b.program(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, sluice, "gateway", "--http", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "SLUICE_NATS_URL="+r.url, "SLUICE_NATS_TOKEN="+token)
	cmd.Stderr = os.Stderr
	stop, url, err := startServer(ctx, cmd, "http://")
	if err != nil {
		return nil, err
	}
	b.atEnd(stop)
	w := &web{rig: r, http: &http.Client{Transport: &http.Transport{}}, url: url, token: secret}
	b.atEnd(closing(w.http.CloseIdleConnections))
	return &gatewayProcess{w, cmd.Process.Pid}, nil
}

// memory returns the resident memory of the gateway now, and the most it ever had, in bytes.
func (g *gatewayProcess) memory() (now, most float64, err error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(g.pid), "status"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, 0, missing(errors.New("this system has no /proc: measure on Linux"))
	}
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		var kib float64
		if name == "VmRSS" || name == "VmHWM" {
			if _, err := fmt.Sscanf(value, "%g kB", &kib); err != nil {
				return 0, 0, fmt.Errorf("%s of the gateway: %w", name, err)
			}
		}
		switch name {
		case "VmRSS":
			now = kib * 1024
		case "VmHWM":
			most = kib * 1024
		}
	}
	return now, most, nil
}
