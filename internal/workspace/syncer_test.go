package workspace

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// call is a call of a hook of thread t1.
func call(sync schemas.TemplateSync, dir string) *hooks.Call {
	return &hooks.Call{
		HookData: schemas.HookData{Conversation: schemas.Conversation{Tenant: "default", Thread: "t1", Session: "s1", Epoch: 1}},
		Template: &schemas.Template{Name: "tpl", Sync: &sync}, Dir: dir,
	}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	testkit.Must(t, err)
	return string(text)
}

func push(t *testing.T, sync schemas.TemplateSync, dir string) *schemas.SyncReport {
	t.Helper()
	report, err := New(Config{}).Push(testkit.Context(t), call(sync, dir))
	testkit.Must(t, err)
	return report
}

func pull(t *testing.T, sync schemas.TemplateSync, dir string) *schemas.SyncReport {
	t.Helper()
	report, err := New(Config{}).Pull(testkit.Context(t), call(sync, dir))
	testkit.Must(t, err)
	return report
}

// eachLocation runs a test with each kind of location.
func eachLocation(t *testing.T, test func(t *testing.T, sync schemas.TemplateSync)) {
	t.Run("folder", func(t *testing.T) {
		test(t, schemas.TemplateSync{Location: "file://" + t.TempDir() + "/{tenant}/{agent}/{thread}"})
	})
	t.Run("s3", func(t *testing.T) {
		for name, value := range map[string]string{
			"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
			"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
		} {
			t.Setenv(name, value)
		}
		backend := s3mem.New()
		testkit.Must(t, backend.CreateBucket("b"))
		server := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(server.Close)
		test(t, schemas.TemplateSync{Location: "s3://b/{tenant}/{agent}/{thread}", Endpoint: server.URL})
	})
}

func TestWorkspaceIsPulledByAnotherWorker(t *testing.T) {
	eachLocation(t, func(t *testing.T, sync schemas.TemplateSync) {
		first, second := t.TempDir(), t.TempDir()
		write(t, first, "a", "one")
		pushed := push(t, sync, first)
		testkit.Equal(t, "files and bytes pushed", []int64{pushed.Files, pushed.Bytes}, []int64{1, 3})
		testkit.Contains(t, "location", pushed.Location, "default/tpl/t1")
		if _, err := time.Parse("20060102T150405.000000Z", strings.SplitN(pushed.Version, "-", 2)[0]); err != nil {
			t.Errorf("version = %q, want a time and a suffix: %v", pushed.Version, err)
		}
		again := push(t, sync, first)
		if again.Version != "" || again.Files != 0 {
			t.Errorf("push without a change stored version %q with %d files, want none", again.Version, again.Files)
		}
		pulled := pull(t, sync, second)
		testkit.Equal(t, "version pulled", pulled.Version, pushed.Version)
		testkit.Equal(t, "files pulled", pulled.Files, int64(1))
		testkit.Equal(t, "a", read(t, second, "a"), "one")

		write(t, first, "a", "of the first")
		write(t, second, "a", "of the second")
		push(t, sync, first)
		report, err := New(Config{}).Push(testkit.Context(t), call(sync, second))
		testkit.WantCode(t, err, schemas.CodeConflict)
		testkit.Equal(t, "conflicts", report.Conflicts, []string{"a"})
		sync.OnConflict = "local"
		report = push(t, sync, second)
		testkit.Equal(t, "conflicts settled", report.Conflicts, []string{"a"})
		if report.Version == "" {
			t.Error("a push that settles a conflict stored no version")
		}
	})
}

func TestFencedPushChangesNothing(t *testing.T) {
	for _, layout := range []string{"packed", "plain"} {
		t.Run(layout, func(t *testing.T) {
			store := t.TempDir()
			sync := schemas.TemplateSync{Location: "file://" + store + "/{thread}", Layout: layout}
			dir := t.TempDir()
			write(t, dir, "a", "one")
			push(t, sync, dir)
			write(t, dir, "a", "two, by a worker that lost the session")
			stale := New(Config{Fence: func(_ context.Context, c schemas.Conversation) error {
				return schemas.Errorf(schemas.CodeLost, "another worker owns thread %s", c.Thread)
			}})
			_, err := stale.Push(testkit.Context(t), call(sync, dir))
			testkit.WantCode(t, err, schemas.CodeLost)
			pulled := t.TempDir()
			pull(t, sync, pulled)
			testkit.Equal(t, "a", read(t, pulled, "a"), "one")
		})
	}
}

func TestSyncerBoundsConcurrentPushes(t *testing.T) {
	ctx := testkit.Context(t)
	root := t.TempDir()
	var running, most atomic.Int64
	s := New(Config{Concurrency: 2, Fence: func(context.Context, schemas.Conversation) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		return nil
	}})
	var all sync.WaitGroup
	for i := range 4 {
		dir := t.TempDir()
		c := call(schemas.TemplateSync{Location: "file://" + root + "/{thread}"}, dir)
		c.Conversation.Thread = fmt.Sprint("t", i)
		write(t, dir, "a", "x")
		for range 5 {
			all.Go(func() {
				if _, err := s.Push(ctx, c); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if got := most.Load(); got > 2 {
		t.Errorf("%d pushes ran at once, want at most 2", got)
	}
	testkit.Equal(t, "folders locked at the end", len(s.folders), 0)
	testkit.Equal(t, "slots in use at the end", len(s.slots), 0)

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	release, err := s.acquire(ctx, "d")
	testkit.Must(t, err)
	if _, err := s.acquire(canceled, "d"); !errors.Is(err, context.Canceled) {
		t.Errorf("acquire with a canceled context: error = %v, want %v", err, context.Canceled)
	}
	release()
	testkit.Equal(t, "folders locked after release", len(s.folders), 0)
}

func TestPullGivesFilesToTheFoldersOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root: sudo -E go test ./internal/workspace")
	}
	sync := schemas.TemplateSync{Location: "file://" + t.TempDir() + "/{thread}"}
	from, to := t.TempDir(), t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(from, "d"), 0o755))
	write(t, from, "d/a", "x")
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(from, "out")))
	push(t, sync, from)
	testkit.Must(t, os.Chown(to, 12345, 12345))
	pull(t, sync, to)
	root, err := os.OpenRoot(to)
	testkit.Must(t, err)
	defer root.Close()
	for _, path := range []string{"d", "d/a"} {
		if uid, gid, err := ownerOf(root, path); uid != 12345 || gid != 12345 || err != nil {
			t.Errorf("owner of %s = %d:%d (error: %v), want 12345:12345", path, uid, gid, err)
		}
	}
}

func TestLocationsRejectOtherURLs(t *testing.T) {
	for _, url := range []string{"", "s3://", "ftp://x/y", "file://host/x", "file:x", "::"} {
		if _, err := new(Locations).Open(t.Context(), url, Options{}); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("Open(%q): error = %v, want %s", url, err, schemas.CodeInvalidArgument)
		}
	}
}

// Hardening 1: what a worker keeps of a workspace's syncs is in no folder of a sandbox, and what a process forges there is not read.
func TestSyncKeepsItsFilesOutOfTheSandbox(t *testing.T) {
	eachLocation(t, func(t *testing.T, sync schemas.TemplateSync) {
		dir := filepath.Join(t.TempDir(), "t1")
		testkit.Must(t, os.Mkdir(dir, 0o755))
		write(t, dir, "a", "one")
		push(t, sync, dir)
		if _, err := os.Stat(filepath.Join(sandbox.SyncDir(dir), ".sandbox-state.index")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, ".sandbox-state.index")); err == nil {
			t.Error("the index is in the workspace")
		}
		write(t, dir, ".sandbox-state.journal", "no journal")
		write(t, dir, "a", "two")
		testkit.Equal(t, "files pushed", push(t, sync, dir).Files, int64(1))
		write(t, dir, ".sandboxignore", strings.Repeat("?x\n", 1<<19))
		_, err := New(Config{}).Push(testkit.Context(t), call(sync, dir))
		testkit.WantCode(t, err, schemas.CodeTooLarge)
	})
}
