package history

import (
	"bytes"
	"fmt"

	"github.com/sluice-dev/sluice/schemas"
)

// checkAnswers compares what each client was answered with the records.
func (c *checker) checkAnswers(p *process) {
	for _, o := range p.ops {
		switch {
		case o.Answered.IsZero():
			c.add(MissingAnswer, p, "sent at %s, CMD %d: %s; records: %s", clock(o.Sent), o.Queued, o.line(), p.story())
		case o.code() == schemas.CodeConflict && p.fingerprint() == o.Fingerprint:
			c.add(WrongAnswer, p, "conflict, although the command on record is the same; records: %s", p.story())
		case o.Result != nil:
			c.checkResult(p, o)
		}
	}
}

// checkResult compares one result with the records.
func (c *checker) checkResult(p *process, o *Op) {
	r := o.Result
	if r.Fingerprint == "" && r.Reason == schemas.ReasonRejected {
		// An answer that is no record says that this sending does not run; another sending of the key may.
		if len(p.ops) == 1 && o.Queued == 0 && p.count(schemas.TypeProcessAccepted) > 0 {
			c.add(WrongAnswer, p, "rejected (%s), and it was accepted; records: %s", r.Error, p.story())
		}
		return
	}
	if r.Fingerprint != o.Fingerprint || r.Process != p.id || p.fingerprint() != "" && p.fingerprint() != o.Fingerprint {
		c.add(ReusedKey, p, "answered with %s %d of another command; records: %s", r.Reason, r.ExitCode, p.story())
		return
	}
	known := c.evicted()
	for _, on := range p.records {
		known = known || on.Type.Terminal() && sameEnd(&on.Result, r)
	}
	if !known {
		c.add(WrongAnswer, p, "answered with %s; records: %s", summary(r), p.story())
	}
	if o.Command.Exec == nil {
		return
	}
	for stream, want := range map[schemas.Stream][]byte{schemas.Stdout: o.Stdout, schemas.Stderr: o.Stderr} {
		got, err := r.Output(stream)
		if err != nil || !bytes.HasPrefix(want, got) {
			c.add(WrongOutput, p, "%s of the answer: %s", stream, difference(got, want))
		}
	}
	switch {
	case c.excused(p, r) || r.Reason == schemas.ReasonRejected:
	case r.Reason == schemas.ReasonExited && !p.stopped() && r.ExitCode != o.ExitCode:
		c.add(WrongAnswer, p, "exit code %d, the command's is %d; records: %s", r.ExitCode, o.ExitCode, p.story())
	case !r.StdoutTruncated && int64(len(r.Stdout)) < r.StdoutBytes && r.StdoutEncoding == schemas.EncodingUTF8:
		c.add(Hole, p, "the answer has %d of %d bytes, and does not say so", len(r.Stdout), r.StdoutBytes)
	}
}

func sameEnd(a, b *schemas.Result) bool {
	return a.Reason == b.Reason && a.ExitCode == b.ExitCode && a.Epoch == b.Epoch && a.Worker == b.Worker && a.Timestamp.Equal(b.Timestamp) &&
		a.StdoutBytes == b.StdoutBytes && a.StderrBytes == b.StderrBytes
}

func summary(r *schemas.Result) string {
	return fmt.Sprintf("%s, exit code %d, %d bytes, epoch %d, worker %s, started %s", r.Reason, r.ExitCode, r.StdoutBytes, r.Epoch, r.Worker,
		clock(r.Timestamp))
}

// difference says where output differs from what the command prints.
func difference(got, want []byte) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	around := func(b []byte) []byte { return b[min(len(b), max(0, n-10)):min(len(b), n+20)] }
	return fmt.Sprintf("%d bytes differ at offset %d from the %d that it prints: %q, want %q",
		len(got), n, len(want), around(got), around(want))
}
