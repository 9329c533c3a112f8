package jail

import (
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/registry/registrytest"
	"github.com/sluice-dev/sluice/schemas"
)

func TestRecordReadsFileOfEarlierVersion(t *testing.T) {
	registrytest.Golden[*jail](t, "testdata/record.json", record{
		Record: registry.Record{ID: "s-1", Name: "0123456789abcdef0123", Spec: sandbox.Spec{
			ID: "s-1", Thread: "thread-1", Workspace: "/var/lib/sluice/workspaces/thread-1", Env: map[string]string{"A": "b"}, Rootfs: "/srv/rootfs.tar",
			Limits: sandbox.Limits{
				MemoryBytes: 512 << 20, CPUs: 1, PIDs: 256, TmpBytes: 64 << 20, WorkspaceBytes: 500_000_000, WorkspaceFiles: 1000, FileBytes: 100_000_000,
			},
			Network: schemas.NetworkHost, Owner: `{"session":"x","epoch":3}`,
		}},
		Ref: hostproc.Ref{PID: 4711, Start: 123456}, UID: 20007, WorkspaceChowned: true,
	})
}
