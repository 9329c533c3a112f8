package processor

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/internal/diskspace"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// diskAge is how old a measurement of the disk may be for a decision.
	diskAge = 200 * time.Millisecond
	// diskEvery is the interval between two looks at the disk for commands that wait for it.
	diskEvery = time.Second
)

// disk watches the file system of the workspaces: while less than its reserve is free, no process starts.
type disk struct {
	worker, dir string
	minFree     int64 // the reserve; 0 for the default
	log         zerolog.Logger

	mu      sync.Mutex
	checked time.Time
	state   schemas.WorkerDisk
	low     bool
	refused bool // a process was refused since it became low
}

// admit returns pool_exhausted while there is too little room for another process.
func (d *disk) admit() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.checked) > diskAge {
		d.measure()
	}
	if !d.low {
		return nil
	}
	d.refused = true
	return schemas.Errorf(schemas.CodePoolExhausted, "worker %s has %d bytes free in %s and keeps %d free, so it starts no process: free space there, remove workspaces with "+
		"`sluice workspace rm`, or start the worker with a smaller --min-free", d.worker, d.state.FreeBytes, d.dir, d.state.MinFreeBytes)
}

// regained reports that there is room again for processes that were refused.
func (d *disk) regained() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.measure()
	if d.low || !d.refused {
		return false
	}
	d.refused = false
	return true
}

// usage measures the disk.
func (d *disk) usage() schemas.WorkerDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.measure()
	return d.state
}

// measure measures the disk. What cannot be measured has room. mu is held.
func (d *disk) measure() {
	dir := d.dir
	space, err := diskspace.Of(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) { // no thread has had a workspace yet
		dir = filepath.Dir(dir)
		space, err = diskspace.Of(dir)
	}
	d.checked = time.Now()
	if err != nil {
		d.state, d.low = schemas.WorkerDisk{}, false
		return
	}
	d.state = schemas.WorkerDisk{FreeBytes: space.Free, MinFreeBytes: space.Reserve(d.minFree)}
	if low := d.state.Low(); low != d.low {
		d.low = low
		d.log.Warn().Bool("low", low).Int64("free_bytes", space.Free).Int64("min_free_bytes", d.state.MinFreeBytes).Str("folder", d.dir).Msg("disk_space")
	}
}
