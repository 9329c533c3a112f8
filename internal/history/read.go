package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Read reads what the streams of a cell hold for a tenant, when nothing writes any more. The journal of the clients, what ran and the
// faults are for the caller to add.
func Read(ctx context.Context, js jetstream.JetStream, cell, tenant string) (*History, error) {
	h := &History{Gaps: make(map[string][]schemas.LogGap), Finished: make(map[string]bool), Runs: make(map[string]int)}
	var unreadable []error
	for _, s := range []struct {
		name string
		take func(m *jetstream.RawStreamMsg, token []string) error
	}{
		{"EVT", h.takeEvent}, {"LOG", h.takeChunk}, {"MSG", h.takeMessage}, {"CMD", h.takeCommand}, {"DLQ", h.takeDead},
	} {
		first, err := eachMessage(ctx, js, "sluice-"+cell+"-"+s.name, func(m *jetstream.RawStreamMsg) error {
			t := strings.Split(m.Subject, ".") // sluice.v1.<cell>.<tenant>.<plane>.…, and in CMD with the partition first
			if len(t) < 6 || s.name != "CMD" && t[3] != tenant {
				return nil
			}
			if err := s.take(m, t[5:]); err != nil {
				unreadable = append(unreadable, fmt.Errorf("%s %d on %s: %w", s.name, m.Sequence, m.Subject, err))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.name, err)
		}
		switch s.name {
		case "EVT":
			h.FirstEvent = first
		case "LOG":
			h.FirstChunk = first
		}
	}
	return h, errors.Join(unreadable...)
}

// take takes one message of a stream.
type take func(*jetstream.RawStreamMsg) error

// eachMessage passes every message of a stream to fn, in order, and returns the sequence of the first. A stream that does not exist is
// empty: MSG and DLQ are created when they are first used.
func eachMessage(ctx context.Context, js jetstream.JetStream, name string, fn take) (first uint64, err error) {
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 || strings.HasSuffix(name, "-CMD") { // a work queue gives a message to one consumer only
		return state.FirstSeq, eachStored(ctx, stream, state.FirstSeq, state.LastSeq, fn)
	}
	cons, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return 0, err
	}
	it, err := cons.Messages()
	if err != nil {
		return 0, err
	}
	defer it.Stop()
	for {
		wait, cancel := context.WithTimeout(ctx, 30*time.Second)
		m, err := it.Next(jetstream.NextContext(wait))
		cancel()
		if err != nil {
			return 0, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return 0, err
		}
		if first == 0 { // replicas enforce limits each for itself: what was read counts, and what the leader has
			first = max(state.FirstSeq, meta.Sequence.Stream)
		}
		raw := &jetstream.RawStreamMsg{
			Subject: m.Subject(), Sequence: meta.Sequence.Stream, Header: m.Headers(), Data: m.Data(), Time: meta.Timestamp,
		}
		if err := fn(raw); err != nil || meta.NumPending == 0 {
			return first, err
		}
	}
}

func eachStored(ctx context.Context, stream jetstream.Stream, from, to uint64, fn take) error {
	for seq := from; seq <= to; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := fn(m); err != nil {
			return err
		}
	}
	return nil
}

// takeEvent takes <thread>.<process|_>.<class>.<name>.
func (h *History) takeEvent(m *jetstream.RawStreamMsg, _ []string) error {
	ev, err := schemas.DecodeEvent(m.Data)
	if err != nil {
		return err
	}
	ev.Seq, ev.Stored = m.Sequence, m.Time
	h.Events = append(h.Events, Stored{ev.Seq, ev.ID, ev.Thread})
	switch {
	case ev.Type.OfProcess():
		r := Record{Event: *ev}
		var of struct {
			Fingerprint string `json:"fingerprint"`
			Epoch       uint64 `json:"epoch"`
		}
		if err := json.Unmarshal(ev.Data, &of); err != nil {
			return err
		}
		r.Fingerprint, r.Epoch = of.Fingerprint, of.Epoch
		if ev.Type.Terminal() {
			err = json.Unmarshal(ev.Data, &r.Result)
		}
		h.Records = append(h.Records, r)
		return err
	case ev.Type == schemas.TypeLogGap:
		var gap schemas.LogGap
		err := json.Unmarshal(ev.Data, &gap)
		h.Gaps[ev.Process] = append(h.Gaps[ev.Process], gap)
		return err
	case ev.Type == schemas.TypeStreamFinished:
		var f schemas.StreamFinish
		err := json.Unmarshal(ev.Data, &f)
		h.Finished[f.Process] = len(f.Failed) == 0
		return err
	default:
		return nil
	}
}

// takeChunk takes <thread>.<process>.<stdout|stderr>.
func (h *History) takeChunk(m *jetstream.RawStreamMsg, t []string) error {
	if len(t) != 3 {
		return errors.New("not a subject of output")
	}
	k := schemas.Chunk{Seq: m.Sequence, Thread: t[0], Process: t[1], Stream: schemas.Stream(t[2]), Data: m.Data}
	var errs [3]error
	k.Offset, errs[0] = strconv.ParseInt(m.Header.Get("Sluice-Offset"), 10, 64)
	k.Number, errs[1] = strconv.ParseInt(m.Header.Get("Sluice-Chunk"), 10, 64)
	k.Epoch, errs[2] = strconv.ParseUint(m.Header.Get("Sluice-Epoch"), 10, 64)
	h.Chunks = append(h.Chunks, k)
	return errors.Join(errs[:]...)
}

// takeMessage takes <thread>.<process>.<user|agent>.
func (h *History) takeMessage(m *jetstream.RawStreamMsg, _ []string) error {
	var msg schemas.Message
	err := json.Unmarshal(m.Data, &msg)
	msg.Seq = m.Sequence
	h.Messages = append(h.Messages, &msg)
	return err
}

func (h *History) takeCommand(m *jetstream.RawStreamMsg, t []string) error {
	h.Waiting = append(h.Waiting, commandOf(m, t[0])) // cmdp.<partition>.<tenant>.<thread>.<op>
	return nil
}

func (h *History) takeDead(m *jetstream.RawStreamMsg, _ []string) error {
	c := commandOf(m, strings.Split(m.Subject, ".")[3])
	c.Reason = m.Header.Get("Sluice-Reason")
	h.Dead = append(h.Dead, c)
	return nil
}

func commandOf(m *jetstream.RawStreamMsg, tenant string) Command {
	c := Command{Seq: m.Sequence}
	if cmd, err := schemas.DecodeCommand(m.Data); err == nil {
		c.Process, c.Fingerprint = schemas.ProcessID(tenant, cmd.Thread, cmd.Key), cmd.Fingerprint()
	} else if req, err := schemas.DecodeCancelRequest(m.Data); err == nil { // one that is left keeps its process in CMD, too
		c.Process, c.Fingerprint = req.Process, req.Fingerprint
	}
	return c
}
