package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sluice-dev/sluice/client"
)

// How much content is measured, and how often.
const (
	fileBytes  = 100 << 20
	fileRounds = 5
)

// fileContent is the MB/s of content that is written into a workspace and read from it again, over that of `cp` on the same disk.
func fileContent(at place) measurement {
	return with(rigAt(at), func(ctx context.Context, b *bench, r *rig) (float64, error) {
		dir, err := b.folder()
		if err != nil {
			return 0, err
		}
		content := bytes.Repeat([]byte("0123456789abcde\n"), fileBytes/16)
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		if err := os.WriteFile(from, content, 0o600); err != nil {
			return 0, err
		}
		files := r.client.Files("files")
		ours := func(ctx context.Context) error {
			if _, err := files.WriteFile(ctx, "file", content); err != nil {
				return err
			}
			return discardFile(ctx, files)
		}
		if err := ours(ctx); err != nil { // starts the sandbox
			return 0, err
		}
		copies := func(ctx context.Context) error { // as many bytes as ours
			return errors.Join(exec.CommandContext(ctx, "cp", from, to).Run(), exec.CommandContext(ctx, "cp", to, from).Run())
		}
		return b.turns(ctx, fileRounds, side{"cp of 100 MiB, twice", 1, timed(copies)}, side{"write and read of 100 MiB", 1, timed(ours)})
	})
}

func discardFile(ctx context.Context, files *client.Files) error {
	r, err := files.Open(ctx, "file", client.FilePart{})
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != fileBytes {
		err = fmt.Errorf("the file has %d bytes, want %d", n, fileBytes)
	}
	return err
}
