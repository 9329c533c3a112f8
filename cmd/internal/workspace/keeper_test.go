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
	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// call is that of a hook of thread t1.
func call(sync schemas.TemplateSync, dir string) *hooks.Call {
	return &hooks.Call{
		HookData: schemas.HookData{Conversation: schemas.Conversation{Tenant: "default", Thread: "t1", Session: "s1", Epoch: 1}},
		Template: &schemas.Template{Name: "tpl", Sync: &sync}, Dir: dir,
	}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return string(text)
}

// places are the kinds of them.
func places(t *testing.T, test func(t *testing.T, sync schemas.TemplateSync)) {
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
		must(t, backend.CreateBucket("b"))
		server := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(server.Close)
		test(t, schemas.TemplateSync{Location: "s3://b/{tenant}/{agent}/{thread}", Endpoint: server.URL})
	})
}

func TestAWorkspaceGoesFromOneWorkerToAnother(t *testing.T) {
	places(t, func(t *testing.T, sync schemas.TemplateSync) {
		ctx := patient(t)
		here, there := t.TempDir(), t.TempDir()
		write(t, here, "a", "one")
		pushed, err := New(Config{}).Push(ctx, call(sync, here))
		must(t, err)
		if pushed.Version == "" || pushed.Files != 1 || pushed.Bytes != 3 || !strings.Contains(pushed.Location, "default/tpl/t1") {
			t.Errorf("%+v", pushed)
		}
		if _, err := time.Parse("20060102T150405.000000Z", strings.SplitN(pushed.Version, "-", 2)[0]); err != nil {
			t.Errorf("the version %q has no time: %v", pushed.Version, err)
		}
		again, err := New(Config{}).Push(ctx, call(sync, here))
		must(t, err)
		if again.Version != "" || again.Files != 0 {
			t.Errorf("nothing has changed: %+v", again)
		}
		pulled, err := New(Config{}).Pull(ctx, call(sync, there))
		must(t, err)
		if pulled.Version != pushed.Version || pulled.Files != 1 || read(t, there, "a") != "one" {
			t.Errorf("%+v", pulled)
		}
		write(t, here, "a", "here")
		write(t, there, "a", "there")
		_, err = New(Config{}).Push(ctx, call(sync, here))
		must(t, err)
		report, err := New(Config{}).Push(ctx, call(sync, there))
		if !errors.Is(err, schemas.ErrConflict) || len(report.Conflicts) != 1 || report.Conflicts[0] != "a" {
			t.Errorf("%+v %v", report, err)
		}
		sync.OnConflict = "local"
		report, err = New(Config{}).Push(ctx, call(sync, there))
		if err != nil || len(report.Conflicts) != 1 || report.Version == "" {
			t.Errorf("%+v %v", report, err)
		}
	})
}

func TestAFencedPushChangesNothing(t *testing.T) {
	for _, layout := range []string{"packed", "plain"} {
		t.Run(layout, func(t *testing.T) {
			ctx := patient(t)
			kept := t.TempDir()
			sync := schemas.TemplateSync{Location: "file://" + kept + "/{thread}", Layout: layout}
			dir := t.TempDir()
			write(t, dir, "a", "one")
			_, err := New(Config{}).Push(ctx, call(sync, dir))
			must(t, err)
			write(t, dir, "a", "two, by a worker that is no longer meant")
			stale := New(Config{Fence: func(_ context.Context, c schemas.Conversation) error {
				return schemas.Errorf(schemas.CodeLost, "%s is another's", c.Thread)
			}})
			if _, err := stale.Push(ctx, call(sync, dir)); !errors.Is(err, schemas.ErrLost) {
				t.Fatal(err)
			}
			there := t.TempDir()
			_, err = New(Config{}).Pull(ctx, call(sync, there))
			must(t, err)
			if got := read(t, there, "a"); got != "one" {
				t.Errorf("pulled %q", got)
			}
		})
	}
}

func TestPushesOfOneFolderTakeTurnsAndAllAreBounded(t *testing.T) {
	ctx := patient(t)
	root := t.TempDir()
	var inside, most atomic.Int64
	k := New(Config{AtOnce: 2, Fence: func(context.Context, schemas.Conversation) error {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
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
				if _, err := k.Push(ctx, c); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if most.Load() > 2 || len(k.busy) != 0 || len(k.slots) != 0 {
		t.Errorf("%d at once, %d folders busy, %d slots taken", most.Load(), len(k.busy), len(k.slots))
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	leave, err := k.enter(ctx, "d")
	must(t, err)
	if _, err := k.enter(ended, "d"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	leave()
	if len(k.busy) != 0 {
		t.Error("a folder that nobody uses is remembered")
	}
}

func TestWhatIsPulledBelongsToTheFoldersOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away: sudo -E go test ./cmd/internal/workspace")
	}
	ctx := patient(t)
	sync := schemas.TemplateSync{Location: "file://" + t.TempDir() + "/{thread}"}
	here, there := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(filepath.Join(here, "d"), 0o755))
	write(t, here, "d/a", "x")
	must(t, os.Symlink("/etc/passwd", filepath.Join(here, "out")))
	_, err := New(Config{}).Push(ctx, call(sync, here))
	must(t, err)
	must(t, os.Chown(there, 12345, 12345))
	_, err = New(Config{}).Pull(ctx, call(sync, there))
	must(t, err)
	root, err := os.OpenRoot(there)
	must(t, err)
	defer root.Close()
	for _, path := range []string{"d", "d/a"} {
		if uid, gid, err := ownerOf(root, path); uid != 12345 || gid != 12345 || err != nil {
			t.Errorf("%s belongs to %d:%d, %v", path, uid, gid, err)
		}
	}
}

func TestPlaces(t *testing.T) {
	for _, place := range []string{"", "s3://", "ftp://x/y", "file://host/x", "file:x", "::"} {
		if _, err := new(Places).Open(t.Context(), place, Options{}); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%q: %v", place, err)
		}
	}
}
