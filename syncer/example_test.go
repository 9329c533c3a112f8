package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

// Two folders are synced through one store. What both have changed is a conflict until the caller chooses a side.
func Example() {
	store := &storetest.Memory{} // in production: s3store.Open, wrapped in objectstore.Retry
	ctx := context.Background()
	open := func(dir string, on plan.OnConflict) *syncer.Syncer {
		s, err := syncer.New(syncer.Config{Root: dir, Store: store, Remote: "s3://bucket/work", OnConflict: on})
		if err != nil {
			panic(err)
		}
		return s
	}
	here, there := tempDir(), tempDir()
	defer func() { _ = os.RemoveAll(here) }()
	defer func() { _ = os.RemoveAll(there) }()

	put(here, "notes.txt", "first")
	report, _ := open(here, "").Push(ctx)
	fmt.Println("pushed", report.Uploaded)
	report, _ = open(there, "").Pull(ctx)
	fmt.Println("pulled", report.Downloaded)

	put(here, "notes.txt", "second, here")
	put(there, "notes.txt", "second, there")
	_, _ = open(here, "").Push(ctx)
	_, err := open(there, "").Push(ctx)
	fmt.Println("conflict:", errors.Is(err, schemas.ErrConflict))

	_, _ = open(there, plan.ConflictRemote).Pull(ctx)
	data, _ := os.ReadFile(filepath.Join(there, "notes.txt"))
	fmt.Println(string(data))
	versions, _ := open(there, "").Versions(ctx)
	fmt.Println(len(versions), "versions")
	// Output:
	// pushed 1
	// pulled 1
	// conflict: true
	// second, here
	// 2 versions
}

// A worker pulls the workspace before the first command of a thread, and pushes it after the last one as a version. It keeps
// both sides of a conflict, and reports it.
func ExampleSyncer_Push() {
	store := &storetest.Memory{} // in production: objectstore.Retry(s3store.Open(…), objectstore.RetryPolicy{})
	ctx := context.Background()
	workspace := func(dir string) *syncer.Syncer {
		s, err := syncer.New(syncer.Config{
			Root: dir, Store: store, Remote: "s3://bucket/threads/42", OnConflict: plan.ConflictBoth,
			Retention: syncer.Retention{Keep: 10},
		})
		if err != nil {
			panic(err)
		}
		return s
	}
	before, one, other := tempDir(), tempDir(), tempDir()
	defer func() { _ = errors.Join(os.RemoveAll(before), os.RemoveAll(one), os.RemoveAll(other)) }()
	put(before, "plan.md", "draft")
	_, _ = workspace(before).Push(ctx)

	for _, dir := range []string{one, other} { // two workers, each at a cold start
		if _, err := workspace(dir).Pull(ctx); err != nil {
			fmt.Println("the command does not start:", schemas.CodeOf(err))
		}
	}
	put(one, "plan.md", "by one")
	put(other, "plan.md", "by the other")
	_, _ = workspace(one).Push(ctx)
	report, err := workspace(other).Push(ctx)
	if err != nil {
		fmt.Println("the workspace is kept for another push:", schemas.CodeOf(err))
	}
	for _, c := range report.Conflicts { // one event each
		fmt.Printf("%s: here %s, there %s, kept %s\n", c.Path, c.Local, c.Remote, c.Kept)
	}
	versions, _ := workspace(other).Versions(ctx)
	fmt.Println(len(versions), "versions;", versions[0].ID == report.Version)
	// Output:
	// plan.md: here changed, there changed, kept both
	// 3 versions; true
}

func tempDir() string {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	return dir
}

func put(dir, name, data string) {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
		panic(err)
	}
}
