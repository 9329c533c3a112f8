package pool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
)

// benchCreate reports the middle of what Create took, in whose workspace there are so many files already, and gives the
// pool time to be filled in between.
func benchCreate(b *testing.B, p sandbox.Provider, files int, ready func()) {
	dir := shortDir(b)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		ready()
		spec := sandbox.Spec{ID: fmt.Sprint("s", i), Workspace: filepath.Join(dir, fmt.Sprint("ws", i))}
		if err := os.Mkdir(spec.Workspace, 0o700); err != nil {
			b.Fatal(err)
		}
		for n := range files {
			if err := os.WriteFile(filepath.Join(spec.Workspace, fmt.Sprint("f", n)), nil, 0o600); err != nil {
				b.Fatal(err)
			}
		}
		start := time.Now()
		s, err := p.Create(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		if err := s.Terminate(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
}

// BenchmarkClaim against BenchmarkCreate is what the pool is for; only their ratio inside one run means anything.
func BenchmarkClaim(b *testing.B) {
	for _, files := range []int{0, 1000} {
		b.Run(fmt.Sprintf("%dFiles", files), func(b *testing.B) {
			p := start(b, Config{Provider: newDocker(b), Templates: []Template{{Size: 1}}, Warn: func(err error) { b.Error(err) }})
			benchCreate(b, p, files, func() {
				if err := p.Filled(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
			if s := p.Stats(); s.Misses > 0 {
				b.Errorf("%+v", s)
			}
		})
	}
}

func BenchmarkCreate(b *testing.B) {
	p := newDocker(b)
	benchCreate(b, p, 0, func() {})
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
}
