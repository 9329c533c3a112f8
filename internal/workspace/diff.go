package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// maxDiffText bounds the text of a reply, or the paths in it, in bytes: with every byte escaped it fits in a message.
const maxDiffText = 128 << 10

// errTooLarge ends the copy of a file that is not compared.
var errTooLarge = errors.New("larger than what is compared")

// Diff compares the workspace with the current version, or its file at name with the version at.
func (s *Syncer) Diff(ctx context.Context, call *hooks.Call, at, name string) (diff *schemas.WorkspaceDiff, err error) {
	own := place{call.Template, call.Conversation.Thread, ""}
	err = s.with(ctx, call, own, func(_ *Location, op *syncer.Syncer) (err error) {
		if name = path.Clean(name); name == "." {
			diff, err = changes(ctx, op)
		} else {
			diff, err = diffFile(ctx, op, call.Dir, at, name)
		}
		return err
	})
	return diff, err
}

// changes is what a push would store.
func changes(ctx context.Context, op *syncer.Syncer) (*schemas.WorkspaceDiff, error) {
	st, err := op.Status(ctx)
	if err != nil {
		return nil, err
	}
	d := &schemas.WorkspaceDiff{Count: int64(len(st.Push))}
	size := 0
	for _, c := range st.Push[:min(len(st.Push), schemas.MaxChanges)] {
		if size += len(c.Path); size > maxDiffText {
			break
		}
		d.Changes = append(d.Changes, schemas.WorkspaceChange{Path: strings.ToValidUTF8(c.Path, "\uFFFD"), What: c.What, Type: c.Kind, Size: c.Size})
	}
	return d, nil
}

// diffFile compares a file with a version. What one of them lacks is empty.
func diffFile(ctx context.Context, op *syncer.Syncer, dir, at, name string) (*schemas.WorkspaceDiff, error) {
	var was, is bounded
	missing := op.Copy(ctx, at, name, &was)
	if missing != nil && !errors.Is(missing, errTooLarge) && !errors.Is(missing, schemas.ErrNotFound) {
		return nil, missing
	}
	switch err := is.readFile(dir, name); {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(missing, schemas.ErrNotFound):
		return nil, missing
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errTooLarge):
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "compare %q: %w", name, err)
	}
	return compare(name, &was, &is), nil
}

func compare(name string, was, is *bounded) *schemas.WorkspaceDiff {
	switch {
	case was.full || is.full:
		return &schemas.WorkspaceDiff{Count: 1, Omitted: schemas.DiffTooLarge}
	case bytes.Equal(was.body, is.body):
		return &schemas.WorkspaceDiff{}
	case !was.isText() || !is.isText():
		return &schemas.WorkspaceDiff{Count: 1, Omitted: schemas.DiffBinary}
	}
	before := string(was.body)
	text, err := udiff.ToUnified("a/"+name, "b/"+name, before, udiff.Lines(before, string(is.body)), udiff.DefaultContextLines)
	if err != nil || len(text) > maxDiffText {
		return &schemas.WorkspaceDiff{Count: 1, Omitted: schemas.DiffTooLarge}
	}
	return &schemas.WorkspaceDiff{Count: 1, Text: text}
}

// bounded holds a file that is small enough to be compared.
type bounded struct {
	body []byte
	full bool // it is not
}

// Write adds to the file. The error is errTooLarge.
func (b *bounded) Write(p []byte) (int, error) {
	if b.full = b.full || len(b.body)+len(p) > schemas.MaxDiffBytes; b.full {
		return 0, errTooLarge
	}
	b.body = append(b.body, p...)
	return len(p), nil
}

func (b *bounded) isText() bool { return bytes.IndexByte(b.body, 0) < 0 && utf8.Valid(b.body) }

// readFile reads a regular file of a workspace. Its processes may change it meanwhile.
func (b *bounded) readFile(dir, name string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	defer root.Close()
	f, _, _, err := worktree.Open(root, name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(b, io.LimitReader(f, schemas.MaxDiffBytes+1))
	return err
}
