package sandbox_test

import (
	"math"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestLimitsOrFillsEveryField(t *testing.T) {
	set := sandbox.Limits{MemoryBytes: 1, CPUs: 2, PIDs: 3, OpenFiles: 8, TmpBytes: 4, WorkspaceBytes: 5, WorkspaceFiles: 6, MinFreeBytes: 9, FileBytes: 7}
	other := sandbox.Limits{MemoryBytes: 11, CPUs: 12, PIDs: 13, OpenFiles: 18, TmpBytes: 14, WorkspaceBytes: 15, WorkspaceFiles: 16, MinFreeBytes: 19, FileBytes: 17}
	testkit.Equal(t, "set or other", set.Or(other), set)
	testkit.Equal(t, "zero or other", sandbox.Limits{}.Or(other), other)
}

func TestLimitsWithDefaults(t *testing.T) {
	standard := sandbox.Limits{
		MemoryBytes: 512 << 20, CPUs: 1, PIDs: 256, OpenFiles: 1024, TmpBytes: 64 << 20, WorkspaceBytes: 2_000_000_000, WorkspaceFiles: 100_000, FileBytes: 1_000_000_000,
	}
	small := standard
	small.MemoryBytes, small.TmpBytes, small.WorkspaceBytes, small.FileBytes = 32<<20, 8<<20, 1000, 1000
	for what, tt := range map[string]struct{ limits, want sandbox.Limits }{
		"zero":                              {sandbox.Limits{}, standard},
		"/tmp and one file follow the rest": {sandbox.Limits{MemoryBytes: 32 << 20, WorkspaceBytes: 1000}, small},
	} {
		got, err := tt.limits.WithDefaults()
		testkit.Must(t, err)
		testkit.Equal(t, what, got, tt.want)
	}
	for what, l := range map[string]sandbox.Limits{
		"negative memory": {MemoryBytes: -1}, "negative CPUs": {CPUs: -1}, "too many CPUs": {CPUs: 4097},
		"no number of CPUs": {CPUs: math.NaN()}, "CPUs without end": {CPUs: math.Inf(1)}, "negative pids": {PIDs: -1}, "negative /tmp": {TmpBytes: -1},
		"negative files": {WorkspaceFiles: -1}, "negative file size": {FileBytes: -1}, "negative reserve": {MinFreeBytes: -1},
		"no memory": {MemoryBytes: 1}, "little memory": {MemoryBytes: 1 << 20},
		"little /tmp": {TmpBytes: 1}, "few CPUs": {CPUs: 0.001}, "few pids": {PIDs: 1}, "too many pids": {PIDs: schemas.MaxPIDs + 1}, "few open files": {OpenFiles: 1},
	} {
		if _, err := l.WithDefaults(); schemas.CodeOf(err) != schemas.CodeInvalidArgument {
			t.Errorf("%s: error %v, want code %s", what, err, schemas.CodeInvalidArgument)
		}
	}
}

// The most processes need no more descriptors than the kernel allows.
func TestHardLimitOfOpenFiles(t *testing.T) {
	for pids, want := range map[int64]int64{256: 1024, schemas.MaxPIDs: 1 << 20} {
		testkit.Equal(t, "hard limit", sandbox.Limits{PIDs: pids, OpenFiles: 1024}.HardOpenFiles(), want)
	}
}
