package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/history"
)

const (
	leaderProbe   = 200 * time.Millisecond // between two requests to a leader
	leaderTimeout = time.Second            // without an answer for so long, there is no leader
)

// replicated are the streams that a queued command needs, each with its name after STREAM, and the consumers of CMD after CONSUMER, in the
// subjects of JetStream's API.
func replicated() (all []string) {
	for _, s := range []string{streamName("CMD"), streamName("EVT"), "KV_" + streamName("state"), "KV_" + streamName("leases")} {
		all = append(all, "STREAM.%s."+s)
	}
	for p := range 4 {
		all = append(all, fmt.Sprintf("CONSUMER.%%s.%s.dispatch-%d", streamName("CMD"), p))
	}
	return all
}

// watchLeaders notes when a leader does not answer, until ctx ends.
func (l *cell) watchLeaders(ctx context.Context) {
	nc, err := nats.Connect(l.urls, nats.Token(token), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		return
	}
	defer nc.Close()
	var group sync.WaitGroup
	for _, of := range replicated() {
		group.Go(func() { l.watchLeader(ctx, nc, "$JS.API."+fmt.Sprintf(of, "INFO")) })
	}
	group.Wait()
}

func (l *cell) watchLeader(ctx context.Context, nc *nats.Conn, subject string) {
	var since time.Time // when the first request without an answer was sent; zero for none
	for pause(ctx, leaderProbe) {
		sent := time.Now()
		m, err := nc.Request(subject, nil, leaderTimeout)
		var reply struct {
			Error any `json:"error"`
		}
		answered := err == nil && json.Unmarshal(m.Data, &reply) == nil && reply.Error == nil
		switch {
		case !answered && since.IsZero():
			since = sent
		case answered && !since.IsZero():
			now := time.Now()
			l.noteBroken(history.Span{From: since, To: now, Back: now})
			since = time.Time{}
		}
	}
}
