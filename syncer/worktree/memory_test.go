package worktree_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Hardening 1: a forged index with a checksum, of nothing but counts and the shortest records. One of 75 MB took 6 GB.
func TestDecodingAnIndexTakesBoundedMemory(t *testing.T) {
	const size = 1 << 20
	empty := (&worktree.Index{Base: state.State{Layout: state.Plain}}).Encode()
	nodes := len(empty) - 4 // the counts of the paths, the nodes of the base, the others, and the files seen
	for name, tail := range map[string]func() []byte{
		"nodes without paths": func() []byte {
			b := append([]byte{0}, binary.AppendUvarint(nil, size/3)...)
			return append(append(b, 0), make([]byte, size)...)
		},
		"nodes": func() []byte {
			b := append(binary.AppendUvarint(nil, size/4), make([]byte, size/4)...)
			b = append(binary.AppendUvarint(b, size/4), 0)
			for range size / 4 {
				b = append(b, 1, 1<<2, 0)
			}
			return append(b, 0)
		},
		"seen": func() []byte {
			return append(append([]byte{0, 0, 0}, binary.AppendUvarint(nil, size/7)...), make([]byte, size)...)
		},
	} {
		data := append(append([]byte{}, empty[:nodes]...), tail()...)
		magic := len("sluice-index-5\n\x00")
		binary.LittleEndian.PutUint32(data[magic:], crc32.Checksum(data[magic+4:], crc32.MakeTable(crc32.Castagnoli)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := worktree.DecodeIndex(bytes.NewReader(data), int64(len(data)), 1<<20)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(64*len(data)+64<<10) {
			t.Errorf("%s: %d bytes took %d of memory, want at most 64 times as many (error: %v)", name, len(data), took, err)
		}
		if _, err := worktree.DecodeIndex(bytes.NewReader(data), int64(len(data)), 1000); err == nil {
			t.Errorf("%s: an index of more entries than the limit was accepted", name)
		}
	}
}
