package dashboard

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// changeRows is how many changes of a workspace a page lists.
	changeRows = 100
	// compareTimeout is how long a page waits for a comparison.
	compareTimeout = 5 * time.Second
)

// workspaceChanges is what a workspace has changed since its last version.
type workspaceChanges struct {
	Count   int64
	Partial bool   // not all are known
	Unknown string // why nothing is known of them

	rows  []changeRow
	what  map[string]string // added, changed or deleted, by path
	below map[string]int    // how many each folder has
}

// changeRow is a path that differs from the last version.
type changeRow struct {
	schemas.WorkspaceChange
	URL string // empty for one that cannot be opened
}

// compare compares the whole workspace with its last version.
func compare(ctx context.Context, s *client.Session, base string) *workspaceChanges {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	d, err := s.Changes(ctx)
	if err != nil {
		return &workspaceChanges{Unknown: schemas.AsError(err).Error()}
	}
	w := &workspaceChanges{
		Count: d.Count, Partial: d.Count > int64(len(d.Changes)),
		what: make(map[string]string, len(d.Changes)), below: make(map[string]int),
	}
	for _, c := range d.Changes {
		w.what[c.Path] = c.What
		for dir := path.Dir(c.Path); dir != "."; dir = path.Dir(dir) {
			w.below[dir]++
		}
		row := changeRow{WorkspaceChange: c}
		if openable(c.Path, c.Type) && (c.Type == "file" || c.What != "deleted") {
			row.URL = base + "/" + escapePath(c.Path)
		}
		w.rows = append(w.rows, row)
	}
	return w
}

// List returns the changes that the page lists.
func (w *workspaceChanges) List() []changeRow { return w.rows[:min(len(w.rows), changeRows)] }

// More is how many changes the page does not list.
func (w *workspaceChanges) More() int64 { return w.Count - int64(len(w.List())) }

// deletedIn returns what a folder had in the last version, and has no more.
func (w *workspaceChanges) deletedIn(folder string) (rows []changeRow) {
	for _, row := range w.rows {
		if row.What == "deleted" && path.Dir(row.Path) == path.Clean(folder) {
			rows = append(rows, row)
		}
	}
	return rows
}

// fileChange is how a file differs from the last version.
type fileChange struct {
	Lines   []diffLine // empty for a file that does not
	Omitted string     // why there are no lines for a file that does
	Unknown string     // why nothing is known of it
}

// diffLine is a line of a unified diff, with the class that gives its color.
type diffLine struct{ Text, Class string }

// compareFile compares a file with the last version. The error is that of [client.Session.Diff].
func compareFile(ctx context.Context, s *client.Session, name string) (*fileChange, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	d, err := s.Diff(ctx, name, "")
	if err != nil {
		return &fileChange{Unknown: schemas.AsError(err).Error()}, err
	}
	c := &fileChange{Omitted: strings.ReplaceAll(string(d.Omitted), "_", " ")}
	for line := range strings.Lines(d.Text) {
		class := map[byte]string{'+': "add", '-': "del", '@': "hunk", '\\': "hunk"}[line[0]]
		c.Lines = append(c.Lines, diffLine{clean(strings.TrimRight(line, "\r\n")), class})
	}
	if len(c.Lines) >= 2 { // the first two name the file
		c.Lines = c.Lines[2:]
	}
	return c, nil
}
