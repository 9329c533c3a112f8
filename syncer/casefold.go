package syncer

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
)

// maxCollisionNotes is how many pairs of names a report lists.
const maxCollisionNotes = 20

// noteCaseCollisions notes names that differ here and are one name on other systems: they differ only in case, or in how
// their accents are composed. They are synced as they are.
func (o *operation) noteCaseCollisions(steps []plan.Step) {
	if !slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Do == plan.TakeLocal && s.Remote == nil }) {
		return
	}
	folded := map[string]string{}
	count := 0
	report := func(a, b string) {
		if count++; count > maxCollisionNotes {
			return
		}
		why := "in case"
		if norm.NFC.String(a) == norm.NFC.String(b) {
			why = "in their Unicode form"
		}
		o.note(fmt.Sprintf("%q and %q differ only %s; on some systems they are one name", state.Clip(a), state.Clip(b), why))
	}
	for i := range steps {
		if n := steps[i].Local; n != nil {
			if f := foldCase(n.Path); f != n.Path {
				if other, ok := folded[f]; ok {
					report(other, n.Path)
				}
				folded[f] = n.Path
			}
		}
	}
	if len(folded) == 0 {
		return
	}
	for i := range steps {
		if n := steps[i].Local; n != nil {
			if other, ok := folded[n.Path]; ok {
				report(n.Path, other)
			}
		}
	}
}

// foldCase returns the path in lower case and composed form. Most paths are in that form already.
func foldCase(path string) string {
	for i := range len(path) {
		if c := path[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
			return strings.ToLower(norm.NFC.String(path))
		}
	}
	return path
}
