package local

import (
	"testing"

	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry/registrytest"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
)

func TestRecordReadsFileOfEarlierVersion(t *testing.T) {
	want := record{Record: registrytest.Record(), Ref: hostproc.Ref{PID: 4711, Start: 123456}}
	registrytest.Golden[*link.Sandbox](t, "testdata/record.json", want)
}
