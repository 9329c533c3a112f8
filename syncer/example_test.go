package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

// Two folders are kept in step through one store; what both have changed is a conflict until somebody says which side
// to keep.
func Example() {
	store := &storetest.Memory{} // in earnest: s3store.Open, wrapped in syncer.Retry
	ctx := context.Background()
	open := func(dir string, on syncer.OnConflict) *syncer.Syncer {
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

	_, _ = open(there, syncer.ConflictRemote).Pull(ctx)
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
