package main

import (
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/internal/history"
	"github.com/sluice-dev/sluice/schemas"
)

// journal is what the clients sent and were answered. It is written before anything is sent.
type journal struct {
	mu  sync.Mutex
	ops []*history.Op
}

// open notes that a command is about to be sent.
func (j *journal) open(o history.Op) *history.Op {
	o.Sent = time.Now()
	o.Fingerprint = o.Command.Fingerprint()
	o.Thread = o.Command.Thread
	o.Process = schemas.ProcessID(schemas.DefaultTenant, o.Thread, o.Command.Key)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ops = append(j.ops, &o)
	return &o
}

// answer notes the answer to a command. An error without a code is one of the client's own, such as a canceled wait.
func (j *journal) answer(o *history.Op, r *schemas.Result, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.Answered = time.Now()
	if r != nil {
		o.Result = r
	} else {
		o.Code = schemas.CodeOf(err)
	}
}

// change changes an op that was opened.
func (j *journal) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
}

// taken is a copy of the journal.
func (j *journal) taken() (ops []history.Op) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.ops {
		ops = append(ops, *o)
	}
	return ops
}

// script is a shell command with its output.
type script struct {
	body           string
	stdout, stderr []byte
	exit           int
}

// exec is the command of a script: it writes its process to the file of runs before anything else.
func (s *script) exec(thread, key string, safe, stdin bool) *schemas.Command {
	process := schemas.ProcessID(schemas.DefaultTenant, thread, key)
	e := &schemas.Exec{Command: "sh", Args: []string{"-c", "echo " + process + " >>" + runsFile + "; " + s.body}, StdinOpen: stdin}
	if safe {
		e.Retry = schemas.RetrySafe
	}
	return &schemas.Command{SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: thread, Key: key, Exec: e}
}

// repeated is what a loop prints.
func repeated(text string, n int) []byte { return []byte(strings.Repeat(text, n)) }
