package events

import (
	"bytes"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// A worker goes on with the output of one that died: readers, one of whom was there all the time, see one output.
func TestALogIsGoneOnWith(t *testing.T) {
	_, c := connected(t, false)
	old, r := ref("t", "p"), ref("t", "p")
	old.Epoch, r.Epoch = 1, 2
	for _, e := range []schemas.ProcessRef{old, r} { // an earlier run, and the first half of this one
		o := newOutput(t, c, e)
		must(t, o.print(schemas.Stdout, noise(e.Epoch, 300<<10)))
		must(t, o.print(schemas.Stderr, noise(e.Epoch+10, 100)))
		o.close()
	}
	f, err := c.Follow(r, 0)
	must(t, err)
	defer f.Close()
	h := newHeard(t)
	must(t, f.Flush(patient(t)))
	must(t, f.CatchUp(patient(t), func(k schemas.Chunk) error {
		if k.Epoch == r.Epoch {
			return h.hear(k)
		}
		return nil
	}))

	data := map[schemas.Stream][]byte{}
	after, err := c.Replay(patient(t), r, func(k schemas.Chunk) error {
		if int(k.Offset) != len(data[k.Stream]) {
			t.Errorf("%s: a chunk at %d after %d bytes", k.Stream, k.Offset, len(data[k.Stream]))
		}
		data[k.Stream] = append(data[k.Stream], k.Data...)
		return nil
	})
	must(t, err)
	if !bytes.Equal(data[schemas.Stdout], noise(2, 300<<10)) || !bytes.Equal(data[schemas.Stderr], noise(12, 100)) || after == nil || after.Chunks < 3 {
		t.Fatalf("%d and %d bytes, %+v", len(data[schemas.Stdout]), len(data[schemas.Stderr]), after)
	}
	first := *after
	o := &output{t: t, data: data, stored: map[schemas.Stream]int64{schemas.Stderr: 100}}
	o.w = c.ResumeLog(r, after, func(s schemas.Stream, end int64) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stored[s] = end
	})
	must(t, o.print(schemas.Stdout, noise(3, 200<<10)))
	result := o.close()
	if l := result.Log; l.FirstSeq != first.FirstSeq || l.LastSeq <= first.LastSeq || l.Chunks <= first.Chunks {
		t.Errorf("%+v after %+v", l, first)
	}
	must(t, f.Finish(patient(t), result, h.hear))
	h.want(schemas.Stdout, o.data[schemas.Stdout])
	h.want(schemas.Stderr, o.data[schemas.Stderr])

	// Nothing more came: it stands where it stood.
	w := c.ResumeLog(r, result.Log, nil)
	if rng, err := w.Close(); err != nil || *rng != *result.Log {
		t.Errorf("%+v, %v", rng, err)
	}
	if rng, err := c.Replay(patient(t), ref("t", "other"), func(schemas.Chunk) error { return nil }); err != nil || rng != nil {
		t.Errorf("%+v, %v", rng, err)
	}
}
