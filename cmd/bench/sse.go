package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/client"
)

// What the readers follow.
const (
	sseReaders = 1000
	sseLines   = 50
	sseLine    = 16 << 10 // bytes of each line
)

// sseMemory is the most memory of a gateway while 1,000 readers follow one log over SSE, in megabytes. All are connected before the process
// prints 50 lines of 16 KiB, five each second, and every one must get every byte.
func sseMemory(ctx context.Context, b *bench, g *gatewayProcess) (float64, error) {
	script := fmt.Sprintf(`echo begin; read go; i=0; while [ $i -lt %d ]; do head -c %d /dev/zero | tr '\0' x; echo; i=$((i+1)); sleep 0.2; done`,
		sseLines, sseLine-1)
	p, err := g.client.StartProcess(ctx, client.Request{Thread: "sse", Command: "sh", Args: []string{"-c", script}, StdinOpen: true})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun, errs := make(chan struct{}, sseReaders), make([]error, sseReaders)
	var all sync.WaitGroup
	for i := range sseReaders {
		all.Go(func() {
			if errs[i] = g.followEvents(ctx, p.ID(), begun); errs[i] != nil {
				cancel() // the others would wait for it
			}
		})
	}
	for range sseReaders {
		select {
		case <-begun:
		case <-ctx.Done():
		}
	}
	connected, _, err := g.memory()
	if err == nil && ctx.Err() == nil {
		err = p.WriteStdin(ctx, []byte("go\n"))
	}
	if err != nil {
		cancel()
	}
	all.Wait()
	if err := errors.Join(err, firstCause(errs)); err != nil {
		return 0, err
	}
	_, most, err := g.memory()
	b.note("gateway: %.0f MB with %d readers before output, at most %.0f MB", connected/1e6, sseReaders, most/1e6)
	return most / 1e6, err
}

// firstCause is the first error that is not the end of the others.
func firstCause(errs []error) (last error) {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		last = errors.Join(last, err)
	}
	return last
}

// followEvents follows a process to its end, and checks its output. It sends to begun with the first of it.
func (w *web) followEvents(ctx context.Context, process string, begun chan<- struct{}) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/v1/processes/"+process+"/output", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("follow: status %d: %s", resp.StatusCode, text)
	}
	const begin = "begin\n"
	got := 0
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the events end after %d bytes of output: %w", got, err)
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var e struct{ Type, Data, Error string }
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		switch {
		case e.Type == "exit" && got == len(begin)+sseLines*sseLine:
			return nil
		case e.Type != "stdout" || strings.Trim(e.Data, "x\n") != "" && e.Data != begin:
			return fmt.Errorf("after %d bytes of output comes %.200s", got, data)
		case got == 0:
			begun <- struct{}{}
		}
		got += len(e.Data)
	}
}
