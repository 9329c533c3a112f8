package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// load is the documented load, and what came of it.
type load struct {
	url, token string
	duration   time.Duration
	sessions   int // at once
	busy       int // of them, those with commands
	perMinute  int // commands
	churners   int
	fileBytes  int
	http       *http.Client
	measured
}

// requestTimeout bounds a request: one that takes longer is an error.
const requestTimeout = 2 * time.Minute

func newLoad() *load {
	return &load{duration: 2 * time.Minute, sessions: 100, busy: 50, perMinute: 1000, churners: 4, fileBytes: 256 << 10,
		http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 512}}}
}

// Operations, in the order of the report.
const (
	opCreate       = "create, all at once"
	opExecute      = "execute"
	opUpload       = "upload, all at once"
	opList         = "list, all at once"
	opDownload     = "download, all at once"
	opChurnCreate  = "churn: create"
	opChurnExecute = "churn: execute"
	opChurnCleanup = "churn: cleanup"
	opCleanup      = "cleanup, all at once"
)

func operations() []string {
	return []string{opCreate, opExecute, opUpload, opList, opDownload, opChurnCreate, opChurnExecute, opChurnCleanup, opCleanup}
}

// run puts the load on. Errors of requests are counted; it fails when there is nothing to go on with.
func (l *load) run(ctx context.Context) error {
	defer l.http.CloseIdleConnections()
	ids := make([]string, l.sessions)
	l.atOnce(func(i int) { ids[i] = l.create(ctx, opCreate, fmt.Sprint("load-", i)) })
	for _, id := range ids {
		if id == "" {
			return fmt.Errorf("%d sessions at once: %w", l.sessions, cmp.Or(ctx.Err(), l.firstError()))
		}
	}
	until, stop := context.WithTimeout(ctx, l.duration)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { l.commands(ctx, until, ids[:l.busy]) })
	all.Go(func() {
		for round := 0; until.Err() == nil; round++ {
			l.files(ctx, ids, round)
		}
	})
	for i := range l.churners {
		all.Go(func() {
			for n := 0; until.Err() == nil; n++ {
				l.churn(ctx, fmt.Sprintf("churn-%d-%d", i, n))
			}
		})
	}
	all.Wait()
	l.atOnce(func(i int) { l.cleanup(ctx, opCleanup, ids[i]) })
	return ctx.Err()
}

// atOnce calls f for every session at the same time.
func (l *load) atOnce(f func(session int)) {
	var all sync.WaitGroup
	for i := range l.sessions {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// commands sends commands at their rate, however long they take, until the time is over. The time of a command counts from when it was due.
func (l *load) commands(ctx, until context.Context, ids []string) {
	var all sync.WaitGroup
	defer all.Wait()
	pace := time.Minute / time.Duration(l.perMinute)
	begin := time.Now()
	for n := 0; ; n++ {
		due := begin.Add(time.Duration(n) * pace)
		select {
		case <-time.After(time.Until(due)):
		case <-until.Done():
			return
		}
		all.Go(func() { l.execute(ctx, opExecute, ids[n%len(ids)], due) })
	}
}

// files uploads a file to every session at once, lists the files, and reads them back.
func (l *load) files(ctx context.Context, ids []string, round int) {
	content := func(i int) []byte {
		line := fmt.Sprintf("session %d round %d\n", i, round)
		return bytes.Repeat([]byte(line), l.fileBytes/len(line))
	}
	const name = "data/file.txt"
	l.atOnce(func(i int) {
		l.time(opUpload, time.Now(), func() error { return l.upload(ctx, ids[i], name, content(i)) })
	})
	l.atOnce(func(i int) {
		l.time(opList, time.Now(), func() error {
			var answer struct {
				Files []struct {
					Name string `json:"name"`
					Size int    `json:"size_bytes"`
				} `json:"files"`
			}
			err := l.get(ctx, "/list_files?session_id="+ids[i], &answer)
			if want := len(content(i)); err == nil && (len(answer.Files) != 1 || answer.Files[0].Name != name || answer.Files[0].Size != want) {
				err = fmt.Errorf("the files are %+v, want %s with %d bytes", answer.Files, name, want)
			}
			return err
		})
	})
	l.atOnce(func(i int) {
		l.time(opDownload, time.Now(), func() error {
			got, err := l.post(ctx, "/download_file", http.StatusOK, map[string]any{"session_id": ids[i], "filename": name})
			if err == nil && !bytes.Equal(got, content(i)) {
				err = fmt.Errorf("the file of %s has %d bytes, and is not what was uploaded", ids[i], len(got))
			}
			return err
		})
	})
}

// churn creates a session, uses it, and cleans it up.
func (l *load) churn(ctx context.Context, thread string) {
	if id := l.create(ctx, opChurnCreate, thread); id != "" {
		l.execute(ctx, opChurnExecute, id, time.Now())
		l.cleanup(ctx, opChurnCleanup, id)
	}
}

// create returns the id of a new session; empty after an error.
func (l *load) create(ctx context.Context, op, thread string) (id string) {
	l.time(op, time.Now(), func() error {
		var answer struct {
			ID string `json:"session_id"`
		}
		err := l.postJSON(ctx, "/create_session", http.StatusCreated, map[string]any{"user_id": "load", "thread_id": thread}, &answer)
		if err == nil && answer.ID == "" {
			err = errors.New("the session has no id")
		}
		id = answer.ID
		return err
	})
	return id
}

// execute runs a command that is due.
func (l *load) execute(ctx context.Context, op, session string, due time.Time) {
	l.time(op, due, func() error {
		var answer struct {
			ExitCode int    `json:"exit_code"`
			Stdout   string `json:"stdout"`
		}
		err := l.postJSON(ctx, "/execute", http.StatusOK, map[string]any{"session_id": session, "command": "echo " + session}, &answer)
		if err == nil && (answer.ExitCode != 0 || strings.TrimSpace(answer.Stdout) != session) {
			err = fmt.Errorf("echo %s: exit code %d, output %.100q", session, answer.ExitCode, answer.Stdout)
		}
		return err
	})
}

func (l *load) cleanup(ctx context.Context, op, session string) {
	l.time(op, time.Now(), func() error {
		_, err := l.post(ctx, "/cleanup", http.StatusOK, map[string]any{"session_id": session})
		return err
	})
}
