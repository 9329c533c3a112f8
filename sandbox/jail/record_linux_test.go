package jail

import (
	"testing"

	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry/registrytest"
)

func TestRecordReadsFileOfEarlierVersion(t *testing.T) {
	want := record{Record: registrytest.Record(), Ref: hostproc.Ref{PID: 4711, Start: 123456}, UID: 20007, WorkspaceChowned: true}
	want.Spec.Rootfs = "/srv/rootfs.tar"
	registrytest.Golden[*jail](t, "testdata/record.json", want)
}
