package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// workload is one row: the preparation of a run, and what the run does.
type workload struct {
	name   string
	data   data
	layout string // of Sluice's side
	pull   bool
	cold   bool // a push to an empty place
	// before prepares the run, after the first push unless that is cold. It is not measured.
	before func(b *bench, t tool, n int) error
	// goals: wall is the lowest ratio, cpu and memory are the largest shares; 0 is none.
	wall, cpu, memory float64
	peak              float64 // the most memory, in MB; 0 is no goal
	sent              float64 // the most kB that Sluice sends; 0 is any
	requests          float64 // the most of Sluice; 0 is any
	than              string  // a workload before this one, than which it takes at most times as long; "" for none
	times             float64
}

// data is a tree of equal files with random content.
type data struct {
	files, size int
}

func (d data) name() string { return fmt.Sprintf("%dx%d", d.files, d.size) }

// write makes the tree, a hundred files to a folder.
func (d data) write(dir string) error {
	random := rand.NewChaCha8([32]byte{byte(d.files), byte(d.size)})
	for i := range d.files {
		folder := filepath.Join(dir, fmt.Sprintf("folder-%04d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		if err := writeFile(filepath.Join(folder, fmt.Sprintf("file-%03d.dat", i%100)), random, d.size); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes in small pieces: a child's peak memory includes what its parent had when it was forked.
func writeFile(path string, random io.Reader, size int) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.CopyN(f, random, int64(size))
	return err
}

// change writes new content into count files, spread over the tree.
func (d data) change(dir string, run, count int) error {
	random := rand.NewChaCha8([32]byte{7, byte(run)})
	buf := make([]byte, d.size)
	for k := range count {
		i := k * (d.files / count)
		_, _ = random.Read(buf) // never fails
		path := filepath.Join(dir, fmt.Sprintf("folder-%04d", i/100), fmt.Sprintf("file-%03d.dat", i%100))
		if err := os.WriteFile(path, buf, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func workloads() []workload {
	small, many, large := data{10000, 4 << 10}, data{100000, 1 << 10}, data{4, 256 << 20}
	most, million := data{300000, 64}, data{1000000, 64}
	return []workload{
		{name: "cold-push-10k", data: small, before: emptyRemote, cold: true, wall: 20, cpu: 0.6, requests: 13},
		{name: "cold-push-10k-plain", data: small, layout: "plain", before: emptyRemote, cold: true, wall: 1.6, cpu: 0.6},
		{name: "cold-pull-10k", data: small, pull: true, before: emptyCopy, wall: 6, cpu: 0.6, requests: 13},
		{name: "no-op-10k", data: small, before: nothing, wall: 35, cpu: 0.6, memory: 0.5, requests: 1},
		{name: "changed-100-of-10k", data: small, before: changed, wall: 9, cpu: 0.6},
		{name: "changed-1-of-10k", data: small, before: changedOne, sent: 200, requests: 4},
		{name: "changed-1-of-300k", data: most, before: changedOne, sent: 1000},
		{name: "no-op-100k", data: many, before: nothing, wall: 35, cpu: 0.6, memory: 0.5},
		{name: "no-op-1M", data: million, before: nothing, peak: 600, than: "no-op-100k", times: 10},
		{name: "push-1GiB", data: large, before: emptyRemote, cold: true, wall: 1.7, cpu: 0.6, peak: 140},
		{name: "push-1GiB-plain", data: large, layout: "plain", before: emptyRemote, cold: true, wall: 1, cpu: 0.6, peak: 140},
		{name: "pull-1GiB", data: large, pull: true, before: emptyCopy, wall: 1.5, cpu: 0.6, peak: 140},
		{name: "pull-1GiB-plain", data: large, layout: "plain", pull: true, before: emptyCopy, wall: 1.5, cpu: 0.6, peak: 140},
	}
}

func emptyRemote(b *bench, t tool, _ int) error {
	if err := b.forget(t); err != nil {
		return err
	}
	return b.clear(b.remoteDir(t))
}

func emptyCopy(b *bench, t tool, _ int) error { return b.clear(b.copyDir(t)) }

func nothing(*bench, tool, int) error { return nil }

// changed makes a hundred files differ from the remote.
func changed(b *bench, t tool, run int) error { return b.now.data.change(b.source(t), run, 100) }

func changedOne(b *bench, t tool, run int) error { return b.now.data.change(b.source(t), run, 1) }
