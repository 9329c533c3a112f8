package events

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// benchBytes is the output of one run.
const benchBytes = 1 << 30

// pipeRate is the rate of a pipe with 64 KiB writes, in bytes per second: the baseline of the ratios here.
func pipeRate(b *testing.B) float64 {
	b.Helper()
	r, w, err := os.Pipe()
	testkit.Must(b, err)
	begun := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer w.Close()
		p := make([]byte, 64<<10)
		for sent := 0; sent < benchBytes; sent += len(p) {
			if _, err := w.Write(p); err != nil {
				b.Error(err)
				return
			}
		}
	})
	p := make([]byte, 64<<10)
	for got := 0; got < benchBytes; {
		n, err := r.Read(p)
		testkit.Must(b, err)
		got += n
	}
	wg.Wait()
	testkit.Must(b, r.Close())
	return benchBytes / time.Since(begun).Seconds()
}

func benchTransports(b *testing.B, bench func(b *testing.B, listen bool)) {
	b.Run("in process", func(b *testing.B) { bench(b, false) })
	b.Run("tcp", func(b *testing.B) { bench(b, true) })
}

func fill(b *testing.B, c *peer, r schemas.ProcessRef) *schemas.Result {
	b.Helper()
	w := c.Open(r, nil)
	p := make([]byte, 64<<10)
	for off := int64(0); off < benchBytes; off += int64(len(p)) {
		testkit.Must(b, w.Write(schemas.Stdout, off, p))
	}
	rng, err := w.Close()
	testkit.Must(b, err)
	return &schemas.Result{Log: rng, StdoutBytes: benchBytes}
}

// BenchmarkReadLog reads stored output. The goal is 0.4 of a pipe.
func BenchmarkReadLog(b *testing.B) {
	benchTransports(b, func(b *testing.B, listen bool) {
		n, c := connected(b, listen)
		r := ref("t", "p")
		fill(b, c, r)
		reader := n.connect()
		pipe := pipeRate(b)
		b.SetBytes(benchBytes)
		b.ResetTimer()
		begun := time.Now()
		for range b.N {
			got := 0
			_, err := reader.ReadLog(b.Context(), r, "", 0, 0, func(k schemas.Chunk) error {
				got += len(k.Data)
				return nil
			})
			testkit.Must(b, err)
			if got != benchBytes {
				b.Fatalf("read %d bytes, want %d", got, benchBytes)
			}
		}
		b.ReportMetric(benchBytes*float64(b.N)/time.Since(begun).Seconds()/pipe, "of-a-pipe")
	})
}

// BenchmarkFollow sends output from a writer to a live follower. The goals are 0.15 of a pipe in process and 0.09 over TCP.
func BenchmarkFollow(b *testing.B) {
	benchTransports(b, func(b *testing.B, listen bool) {
		n, c := connected(b, listen)
		reader := n.connect()
		pipe := pipeRate(b)
		b.SetBytes(benchBytes)
		b.ResetTimer()
		begun := time.Now()
		for i := range b.N {
			r := ref("t", "p"+string(rune('a'+i)))
			f, err := reader.FollowLog(r, 0)
			testkit.Must(b, err)
			testkit.Must(b, f.Flush(b.Context()))
			ended := make(chan *schemas.Result, 1)
			got := 0
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := follow(b.Context(), f, ended, func(k schemas.Chunk) error { got += len(k.Data); return nil }); err != nil {
					b.Error(err)
				}
			})
			ended <- fill(b, c, r)
			wg.Wait()
			f.Close()
			if got != benchBytes {
				b.Fatalf("read %d bytes, want %d", got, benchBytes)
			}
		}
		b.ReportMetric(benchBytes*float64(b.N)/time.Since(begun).Seconds()/pipe, "of-a-pipe")
	})
}
