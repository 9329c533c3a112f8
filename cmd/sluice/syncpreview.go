package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// errManyDeletions is the cause of the error for more deletions than --max-delete allows.
var errManyDeletions = errors.New("nothing was changed")

// fewFiles is how many files may be deleted by default, however few others there are.
const fewFiles = 10

func maxDeleteFlag(c *cobra.Command, f *syncFlags) {
	c.Flags().StringVar(&f.maxDelete, "max-delete", "half",
		"most files `N` to delete, or any; half: at most half of the files, where no others take their place")
}

// deletionLimit returns the check that --max-delete asks for. By default it refuses what an emptied or a wrong folder would do.
func deletionLimit(max string) (func(syncer.Deletion) error, error) {
	n, err := strconv.Atoi(max)
	if max != "" && max != "half" && max != "any" && (err != nil || n < 0) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: --max-delete %q: use a number, half or any", max)
	}
	return func(d syncer.Deletion) error {
		switch {
		case max == "" || max == "any", err == nil && d.Deleted <= n:
			return nil
		case max == "half" && (d.Deleted <= fewFiles || 2*(d.Deleted-d.Added) <= d.Of):
			return nil
		}
		return schemas.Errorf(schemas.CodeLimitExceeded, "sync: refused to delete %d of %s in the %s, since --max-delete is %s: "+
			"pass --max-delete %d if that is right; %w", d.Deleted, count(d.Of, "file"), d.Side, max, d.Deleted, errManyDeletions)
	}, nil
}

func dryRunFlag(c *cobra.Command, f *syncFlags) {
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
}

// preview shows what a push or a pull would do. A folder that does not exist counts as empty.
func (f *syncFlags) preview(ctx context.Context, args []string, op func(*syncer.Syncer, context.Context) (*syncer.Preview, error)) (err error) {
	f.reads = true
	dir := args[0]
	if _, statErr := os.Stat(dir); errors.Is(statErr, os.ErrNotExist) && f.mayCreate {
		if dir, err = os.MkdirTemp("", "sluice-"); err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
		defer func() { err = errors.Join(err, removal.Path(dir)) }()
	}
	return f.withSyncer(ctx, dir, args[1], func(ctx context.Context, s *syncer.Syncer, progress *syncProgress) error {
		p, err := op(s, ctx)
		progress.finish()
		if err != nil {
			err = f.interrupted(ctx, err)
		}
		if f.asJSON {
			return errors.Join(f.printJSON(struct {
				*syncer.Preview
				Error *schemas.Error `json:"error,omitempty"`
			}{p, schemas.AsError(err)}), err)
		}
		return errors.Join(printPreview(f.Main, p), err)
	})
}

func printPreview(m *Main, p *syncer.Preview) error {
	if err := printChanges(m, p.Changes); err != nil {
		return err
	}
	printSyncFindings(m, p.Conflicts, p.Skipped, p.Notes)
	var bytes int64
	for _, c := range p.Changes {
		bytes += c.Size
	}
	fmt.Fprintf(m.Stdout, "dry run: %s would change, %s; nothing was changed\n", count(len(p.Changes), "path"), byteSize(bytes))
	return nil
}
