package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/history"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	threads       = 24 // of commands
	conversations = 4  // threads of messages
	sdks          = 3  // connections of the SDK
)

// clients are the callers of a cell.
type clients struct {
	cfg     *config
	cell    *cell
	journal *journal
	conns   []*events.Conn
	sdk     []*client.Client
	flooded sync.WaitGroup // commands of floods that wait for their end
	// After sending ends, no client sends. After waiting ends, no client waits for an answer.
	sending, waiting context.Context

	mu   sync.Mutex
	used []history.Op // commands that any client may send again, also at the same time
}

func newClients(cfg *config, l *cell, j *journal) (*clients, error) {
	c := &clients{cfg: cfg, cell: l, journal: j}
	for range sdks {
		conn, err := events.Connect(events.Options{URL: l.urls, Token: token, Name: "chaos"})
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
		sdk, err := client.New(conn)
		if err != nil {
			c.close()
			return nil, err
		}
		c.sdk = append(c.sdk, sdk)
	}
	return c, nil
}

func (c *clients) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// caller is one client.
type caller struct {
	*clients
	id   int
	sdk  *client.Client
	rng  *rand.Rand
	next int // of its keys
}

// run sends until sending ends, and returns when everything is answered, or waiting ends.
func (c *clients) run() {
	var group sync.WaitGroup
	for i := range c.cfg.clients {
		k := &caller{clients: c, id: i, sdk: c.sdk[i%len(c.sdk)], rng: rand.New(rand.NewPCG(c.cfg.seed, uint64(i)+2))}
		group.Go(func() {
			for pause(k.sending, time.Duration(k.rng.IntN(300))*time.Millisecond) {
				k.turn()
			}
		})
	}
	group.Wait()
	c.flooded.Wait()
}

// turn is one thing that a client does.
func (k *caller) turn() {
	acts := []struct {
		weight int
		do     func()
	}{
		{30, k.direct}, {12, k.follow}, {12, k.queue}, {8, k.repeat}, {4, k.reuse}, {6, k.cancel}, {6, k.cancelQueued}, {4, k.input}, {6, k.message}, {6, k.safe},
	}
	sum := 0
	for _, a := range acts {
		sum += a.weight
	}
	n := k.rng.IntN(sum)
	for _, a := range acts {
		if n -= a.weight; n < 0 {
			a.do()
			return
		}
	}
}

func (k *caller) key() string {
	k.next++
	return fmt.Sprintf("s%d-c%d-%d", k.cfg.seed, k.id, k.next)
}

func (k *caller) thread() string { return fmt.Sprint("t", k.rng.IntN(threads)) }

// script is a command of one of several kinds: brief, with much output, slow, or in bursts.
func (k *caller) script() *script {
	exit := []int{0, 0, 0, 3}[k.rng.IntN(4)]
	word := fmt.Sprintf("c%d-%d", k.id, k.next)
	switch n := k.rng.IntN(10); {
	case n < 4:
		return &script{body: fmt.Sprintf("echo %s; exit %d", word, exit), stdout: []byte(word + "\n"), exit: exit}
	case n < 5: // a few hundred KB to 2 MB
		lines := 20_000 << k.rng.IntN(4)
		return &script{body: fmt.Sprintf("yes %s | head -n %d; exit %d", word, lines, exit), stdout: repeated(word+"\n", lines), exit: exit}
	case n < 6:
		return &script{body: fmt.Sprintf("sleep %.1f; echo %s; exit %d", k.rng.Float64()*3, word, exit), stdout: []byte(word + "\n"), exit: exit}
	default:
		turns, lines := 5+k.rng.IntN(40), 1+k.rng.IntN(200)
		turn := fmt.Sprintf("yes %s | head -n %d; echo err >&2; sleep 0.05", word, lines)
		return &script{
			body:   fmt.Sprintf("i=0; while [ $i -lt %d ]; do %s; i=$((i+1)); done; exit %d", turns, turn, exit),
			stdout: repeated(word+"\n", turns*lines), stderr: repeated("err\n", turns), exit: exit,
		}
	}
}

// request is a command in the form of the SDK.
func request(cmd *schemas.Command) client.Request {
	return client.Request{Thread: cmd.Thread, Key: cmd.Key, Command: cmd.Exec.Command, Args: cmd.Exec.Args, Retry: cmd.Exec.Retry}
}

// op is a command before it is sent.
func (s *script) op(cmd *schemas.Command) history.Op {
	return history.Op{Command: cmd, Stdout: s.stdout, Stderr: s.stderr, ExitCode: s.exit}
}

// send sends a command by the SDK until it has an answer that sending it again does not change.
func (k *caller) send(o history.Op, exec func(context.Context, *history.Op) (*schemas.Result, error)) *history.Op {
	for delay := 200 * time.Millisecond; ; delay = min(2*delay, 3*time.Second) {
		sent := k.journal.open(o)
		r, err := exec(k.waiting, sent)
		if k.waiting.Err() != nil && r == nil {
			return sent // no answer
		}
		k.journal.answer(sent, r, err)
		again := r == nil && schemas.CodeOf(err).Retryable() || r != nil && r.RunsAgain()
		if !again || !pause(k.sending, delay) {
			return sent
		}
	}
}

// pause waits, and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

func (k *caller) exec(ctx context.Context, o *history.Op) (*schemas.Result, error) {
	return k.sdk.Exec(ctx, request(o.Command))
}

func (k *caller) direct() {
	s := k.script()
	o := s.op(s.exec(k.thread(), k.key(), false, false))
	k.mu.Lock()
	k.used = append(k.used, o)
	k.mu.Unlock()
	k.send(o, k.exec)
}

func (k *caller) safe() {
	s := k.script()
	k.send(s.op(s.exec(k.thread(), k.key(), true, false)), k.exec)
}

// earlier is a command that was sent, often one of the last.
func (k *caller) earlier() (history.Op, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.used)
	if n == 0 {
		return history.Op{}, false
	}
	if k.rng.IntN(2) == 0 {
		return k.used[n-1-k.rng.IntN(min(n, 8))], true
	}
	return k.used[k.rng.IntN(n)], true
}

// repeat sends an earlier command again.
func (k *caller) repeat() {
	if o, ok := k.earlier(); ok {
		k.send(o, k.exec)
	}
}

// reuse sends another command under a key that was used.
func (k *caller) reuse() {
	o, ok := k.earlier()
	if !ok {
		return
	}
	s := &script{body: "echo another", stdout: []byte("another\n")}
	k.send(s.op(s.exec(o.Command.Thread, o.Command.Key, false, false)), k.exec)
}

// cancel ends a command early: by its context, or by a kill.
func (k *caller) cancel() {
	s := &script{body: "echo begun; sleep 4; echo ended", stdout: []byte("begun\nended\n")}
	o := s.op(s.exec(k.thread(), k.key(), false, false))
	o.Stopped = true
	sent := k.journal.open(o)
	ctx, stop := context.WithTimeout(k.waiting, time.Duration(k.rng.IntN(1500))*time.Millisecond)
	defer stop()
	r, err := k.sdk.Exec(ctx, request(o.Command))
	if errors.Is(err, schemas.ErrCanceled) {
		k.journal.change(func() { sent.Canceled = time.Now() })
	}
	if k.waiting.Err() == nil || r != nil {
		k.journal.answer(sent, r, err)
	}
}

// input sends standard input in pieces, and gets it back.
func (k *caller) input() {
	line := fmt.Sprintf("line of c%d-%d\n", k.id, k.next)
	s := &script{body: "cat", stdout: repeated(line, 4000)}
	pieces := 5
	k.send(s.op(s.exec(k.thread(), k.key(), false, true)), func(ctx context.Context, o *history.Op) (*schemas.Result, error) {
		req := request(o.Command)
		var from []io.Reader
		for i := range pieces {
			from = append(from, &slow{ctx: ctx, Reader: bytes.NewReader(s.stdout[i*len(s.stdout)/pieces : (i+1)*len(s.stdout)/pieces])})
		}
		req.Stdin = io.MultiReader(from...)
		return k.sdk.Exec(ctx, req)
	})
}

// slow is a reader that waits before its first byte.
type slow struct {
	io.Reader
	ctx    context.Context
	waited bool
}

func (s *slow) Read(p []byte) (int, error) {
	if !s.waited {
		s.waited = true
		select {
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
	}
	return s.Reader.Read(p)
}

func (k *caller) message() {
	thread, key := fmt.Sprint("m", k.rng.IntN(conversations)), k.key()
	cmd := &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpMessage, Thread: thread, Key: key, Template: "echo-agent",
		Message: &schemas.MessageRequest{Prompt: "hello " + key},
	}
	k.send(history.Op{Command: cmd}, func(ctx context.Context, o *history.Op) (*schemas.Result, error) {
		return k.sdk.Message(ctx, client.Prompt{Thread: cmd.Thread, Text: cmd.Message.Prompt, Template: cmd.Template, Key: cmd.Key})
	})
}

// steady is a command that prints a line at a time, long enough to outlast a fault.
func (k *caller) steady() *script {
	lines := 50 + k.rng.IntN(400)
	var out bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&out, "line %d of c%d\n", i, k.id)
	}
	return &script{
		body:   fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i of c%d"; sleep 0.02; i=$((i+1)); done`, lines, k.id),
		stdout: out.Bytes(),
	}
}

// follow streams the output, and leaves and comes back while it does.
func (k *caller) follow() {
	s := k.steady()
	if k.rng.IntN(3) == 0 {
		s = k.script() // also much at once
	}
	k.send(s.op(s.exec(k.thread(), k.key(), false, false)), func(ctx context.Context, o *history.Op) (*schemas.Result, error) {
		x, err := k.sdk.ExecStream(ctx, request(o.Command))
		if err != nil {
			return nil, err
		}
		defer x.Close()
		var out followed
		leave := k.rng.IntN(2) == 0
		for e, err := range x.Events(ctx) {
			if e.Chunk != nil {
				out.keep(e.Chunk)
				if leave {
					break
				}
				continue
			}
			if e.Result != nil {
				k.journal.change(func() { out.note(o) })
				return e.Result, nil
			}
			if err != nil && out.last == 0 {
				return nil, err
			}
		}
		return k.resume(ctx, o, x.Process(), &out)
	})
}

// followed is what a follower has received.
type followed struct {
	stdout  []byte
	last    uint64 // the sequence of its last chunk
	chunks  []history.FollowedChunk
	gaps    []schemas.LogGap
	started bool // since it began or went on
}

func (f *followed) keep(k *schemas.Chunk) {
	f.last = k.Seq
	if k.Stream != schemas.Stdout {
		return
	}
	f.stdout = append(f.stdout, k.Data...)
	f.chunks = append(f.chunks, history.FollowedChunk{
		Seq: k.Seq, Epoch: k.Epoch, Number: k.Number, Offset: k.Offset, Size: int64(len(k.Data)), First: !f.started,
	})
	f.started = true
}

// note adds it to the history. The journal's lock is held.
func (f *followed) note(o *history.Op) {
	o.Follows, o.Followed, o.Chunks, o.Gaps = true, f.stdout, f.chunks, f.gaps
}

// resume goes on after the last chunk, as often as it takes.
func (k *caller) resume(ctx context.Context, o *history.Op, process string, out *followed) (*schemas.Result, error) {
	for {
		out.started = false
		q := client.LogQuery{Process: process, Thread: o.Thread, From: out.last + 1, Follow: true, Gap: func(g schemas.LogGap) error {
			out.gaps = append(out.gaps, g)
			return nil
		}}
		err := k.sdk.Logs(ctx, q, func(c schemas.Chunk) error {
			out.keep(&c)
			return nil
		})
		if err == nil {
			var p *client.Process
			if p, err = k.sdk.Process(ctx, o.Thread, process); err == nil {
				if r, err := p.Result(ctx); err == nil {
					k.journal.change(func() { out.note(o) })
					return r, nil
				}
			}
		}
		if !pause(ctx, 200*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}
