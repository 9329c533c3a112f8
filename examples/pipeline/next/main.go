// Command next chains the second step of a pipeline to the first: it queues a review for each draft that is finished, once, however often
// it is killed. It uses the packages of NATS alone; docs/contract.md describes the recipe.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	root     = "sluice.v1.local.default" // version, cell and tenant
	events   = "sluice-local-EVT"
	consumer = "review"
	dead     = "acme.dead.review"
	advisory = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + events + "." + consumer
)

// finished is the part of stream.finished that it needs; see schemas/json/event.json.
type finished struct {
	Thread      string            `json:"thread"`
	Process     string            `json:"process"`
	Template    string            `json:"template"`
	TraceParent string            `json:"traceparent"`
	TraceState  string            `json:"tracestate"`
	Labels      map[string]string `json:"labels"`
	Data        struct {
		ExitCode int      `json:"exit_code"`
		Version  string   `json:"version"`
		Failed   []string `json:"failed"`
	} `json:"data"`
}

// command is a message to the reviewer; see schemas/json/command.json.
type command struct {
	SpecVersion string            `json:"specversion"`
	Op          string            `json:"op"`
	Thread      string            `json:"thread"`
	Key         string            `json:"key"`
	Template    string            `json:"template"`
	Message     prompt            `json:"message"`
	TraceParent string            `json:"traceparent,omitempty"`
	TraceState  string            `json:"tracestate,omitempty"`
	Labels      map[string]string `json:"labels"`
}

type prompt struct {
	Prompt string `json:"prompt"`
}

// chain is the consumer with its settings.
type chain struct {
	js        jetstream.JetStream
	beforeAck time.Duration
}

func main() {
	ackWait := flag.Duration("ack-wait", 30*time.Second, "time after which an event without an ack is delivered again")
	beforeAck := flag.Duration("before-ack", 0, "wait between publish and ack, to be killed there")
	flag.Parse()
	if err := run(*ackWait, *beforeAck); err != nil {
		fmt.Fprintln(os.Stderr, "next:", err)
		os.Exit(1)
	}
}

func run(ackWait, beforeAck time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	nc, err := nats.Connect(os.Getenv("SLUICE_NATS_URL"), nats.Token(os.Getenv("SLUICE_NATS_TOKEN")), nats.Name("next"))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// What can never be handled, and what JetStream gives up delivering.
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "acme-DEAD", Subjects: []string{dead, advisory}, MaxAge: 30 * 24 * time.Hour,
	}); err != nil {
		return err
	}
	steps, err := js.CreateOrUpdateConsumer(ctx, events, jetstream.ConsumerConfig{
		Durable: consumer, FilterSubject: root + ".evt.*.*.stream.finished",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: 10,
	})
	if err != nil {
		return err
	}
	messages, err := steps.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	fmt.Println("ready")
	c := chain{js, beforeAck}
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err == nil {
			err = c.handle(ctx, m)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "next:", err) // it is delivered again
		}
	}
}

// handle queues the next step and then acks the event. Killed in between, it does the same again: the command has the same key.
func (c *chain) handle(ctx context.Context, m jetstream.Msg) error {
	var ev finished
	if err := json.Unmarshal(m.Data(), &ev); err != nil {
		return c.bury(ctx, m, "not an event")
	}
	switch {
	case ev.Template != "writer":
		return m.Ack() // not this pipeline's first step
	case ev.Data.ExitCode != 0:
		return c.bury(ctx, m, fmt.Sprintf("the writer ended with %d", ev.Data.ExitCode))
	case ev.Data.Version == "":
		return c.bury(ctx, m, fmt.Sprintf("the draft is not stored: %v failed", ev.Data.Failed))
	}
	// Everything comes from the event, so that the same event makes the same command.
	labels := map[string]string{}
	maps.Copy(labels, ev.Labels)
	labels["source"] = ev.Thread // where the reviewer's workspace begins
	next := command{
		SpecVersion: "1", Op: "message", Thread: "review-" + ev.Process, Key: consumer + ":" + ev.Process, Template: "reviewer",
		Message: prompt{"Review the draft."}, TraceParent: ev.TraceParent, TraceState: ev.TraceState, Labels: labels,
	}
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if _, err := c.js.Publish(ctx, root+".cmd."+next.Thread+".message", body); err != nil {
		return err
	}
	fmt.Println("queued", next.Thread)
	time.Sleep(c.beforeAck)
	if err := m.DoubleAck(ctx); err != nil {
		return err
	}
	fmt.Println("acked", next.Thread)
	return nil
}

// bury stores an event that can never be handled, and has it not delivered again.
func (c *chain) bury(ctx context.Context, m jetstream.Msg, why string) error {
	letter := nats.NewMsg(dead)
	letter.Header.Set("Reason", why)
	letter.Data = m.Data()
	if _, err := c.js.PublishMsg(ctx, letter); err != nil {
		return err
	}
	fmt.Println("dead letter:", why)
	return m.TermWithReason(why)
}
