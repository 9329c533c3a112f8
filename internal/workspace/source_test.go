package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 13: a workspace begins with the last version of another thread, as a copy: it has its own versions from then on.
func TestWorkspaceBeginsWithAnotherThreads(t *testing.T) {
	eachLocation(t, func(t *testing.T, sync schemas.TemplateSync) {
		ctx := testkit.Context(t)
		writer := &schemas.Template{Name: "writer", Sync: &sync}
		review := &schemas.Template{Name: "review", Sync: &sync, Workspace: &schemas.TemplateWorkspace{From: "thread/{label.source}", Template: "writer"}}
		s := New(Config{Template: func(name string) (*schemas.Template, error) {
			testkit.Equal(t, "template of the source", name, "writer")
			return writer, nil
		}})
		of := func(template *schemas.Template, thread, from, dir string) *hooks.Call {
			c := call(sync, dir)
			c.Template, c.Conversation.Thread, c.Conversation.From = template, thread, from
			return c
		}
		first, second := t.TempDir(), t.TempDir()
		_, err := s.Pull(ctx, of(review, "t2", "t1", second))
		testkit.WantCode(t, err, schemas.CodeNotFound)

		write(t, first, "a", "one")
		write(t, first, "b", "two")
		pushed, err := s.Push(ctx, of(writer, "t1", "", first))
		testkit.Must(t, err)
		pulled, err := s.Pull(ctx, of(review, "t2", "t1", second))
		testkit.Must(t, err)
		testkit.Equal(t, "version and files", []any{pulled.Version, pulled.Files}, []any{pushed.Version, int64(2)})
		testkit.Equal(t, "a", read(t, second, "a"), "one")

		// What changed since the cold start stays in the next one, on this worker.
		write(t, second, "a", "reviewed")
		testkit.Must(t, os.Remove(filepath.Join(second, "b")))
		write(t, first, "a", "one, later")
		_, err = s.Push(ctx, of(writer, "t1", "", first))
		testkit.Must(t, err)
		_, err = s.Pull(ctx, of(review, "t2", "t1", second))
		testkit.Must(t, err)
		testkit.Equal(t, "a after a second cold start", read(t, second, "a"), "reviewed")
		if _, err := os.Stat(filepath.Join(second, "b")); err == nil {
			t.Error("a removed file is back")
		}

		// Its own version is what another worker gets.
		own, err := s.Push(ctx, of(review, "t2", "t1", second))
		testkit.Must(t, err)
		testkit.Contains(t, "location", own.Location, "default/review/t2")
		third := t.TempDir()
		pulled, err = s.Pull(ctx, of(review, "t2", "t1", third))
		testkit.Must(t, err)
		testkit.Equal(t, "version", pulled.Version, own.Version)
		testkit.Equal(t, "a", read(t, third, "a"), "reviewed")
		// The first thread has what it had.
		again := t.TempDir()
		_, err = s.Pull(ctx, of(writer, "t1", "", again))
		testkit.Must(t, err)
		testkit.Equal(t, "a of the first thread", read(t, again, "a"), "one, later")
	})
}

// Ten minutes 13: a read-only workspace is what the other thread has stored last, whatever is in the folder.
func TestReadOnlyWorkspaceFollowsItsSource(t *testing.T) {
	eachLocation(t, func(t *testing.T, sync schemas.TemplateSync) {
		ctx := testkit.Context(t)
		first, second := t.TempDir(), t.TempDir()
		write(t, first, "a", "one")
		push(t, sync, first)
		reader := &schemas.Template{Name: "reader", Workspace: &schemas.TemplateWorkspace{From: "thread/t1", Template: "tpl", Mode: "read-only"}}
		s := New(Config{Template: func(string) (*schemas.Template, error) { return &schemas.Template{Name: "tpl", Sync: &sync}, nil }})
		for _, text := range []string{"one", "two"} {
			write(t, first, "a", text)
			push(t, sync, first)
			c := call(sync, second)
			c.Template, c.Conversation.Thread, c.Conversation.From = reader, "t2", "t1"
			_, err := s.Pull(ctx, c)
			testkit.Must(t, err)
			testkit.Equal(t, "a", read(t, second, "a"), text)
			write(t, second, "a", "damaged")
		}
	})
}
