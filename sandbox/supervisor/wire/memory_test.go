package wire

import (
	"runtime"
	"testing"
)

// Hardening 1: a frame of nothing but counts and empty members takes at most a fixed multiple of its size.
func TestDecodingTakesBoundedMemory(t *testing.T) {
	const size = 64 << 10
	for kind := range len(newMessage) {
		if newMessage[kind] == nil {
			continue
		}
		for zeros := range 64 { // the count of a list may be at any place
			payload := make([]byte, size)
			for i := zeros; i+4 <= zeros+4*8; i += 4 {
				put64(payload[i:], size/4)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(Type(kind), payload)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 8*size+4096 {
				t.Errorf("type %d: %d bytes took %d of memory, want at most 8 times as many (error: %v)", kind, size, took, err)
			}
		}
	}
}
