package state_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/syncer/state"
)

// Hardening 1: lists of what is shorter than any entry can be. 48 MB of [0,0,…] took 5 GB.
func TestDecodingAStateTakesBoundedMemory(t *testing.T) {
	const size = 1 << 20
	long := func(element string) string {
		return element + strings.Repeat(","+element, size/(len(element)+1))
	}
	file := `{"path":"a","checksum":"00000000000000000000000000000000","size":0,"modified_at":0}`
	for name, text := range map[string]string{
		"files 0":     `{"version":"1.0","files":[` + long("0") + `]}`,
		"files null":  `{"version":"1.0","files":[` + long("null") + `]}`,
		"files {}":    `{"version":"1.0","files":[` + long("{}") + `]}`,
		"files []":    `{"version":"1.0","files":[` + long("[]") + `]}`,
		"the same":    `{"version":"1.0","files":[` + long(file) + `]}`,
		"objects":     `{"version":"1.0","files":[],"sluice":{"format":1,"layout":"packed","objects":[` + long("0") + `]}}`,
		"folders":     `{"version":"1.0","files":[],"sluice":{"format":1,"layout":"packed","folders":[` + long(`{"path":"a"}`) + `]}}`,
		"lineage":     `{"version":"1.0","files":[],"sluice":{"format":1,"layout":"packed","lineage":[` + long(`""`) + `]}}`,
		"locations":   `{"version":"1.0","files":[{"path":"a","chunks":[` + long("0") + `]}]}`,
		"other lists": `{"version":"1.0","x":[` + long("[]") + `],"files":[]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := state.Decode([]byte(text), state.Limits{})
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(64*len(text)) {
			t.Errorf("%s: %d bytes took %d of memory, want at most 64 times as many (error: %v)", name, len(text), took, err)
		}
	}
}
