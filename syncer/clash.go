package syncer

import (
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// clashNotes is how many pairs of names a report names at most.
const clashNotes = 20

// clashes notes the names that are two here and one on other systems: those that differ in case alone, and those that
// differ in how their accents are composed. They are synced as they are.
func (x *session) clashes(steps []Step) {
	added := false
	for i := range steps {
		added = added || steps[i].Do == TakeLocal && steps[i].Remote == nil
	}
	if !added {
		return
	}
	folded := map[string]string{}
	count := 0
	report := func(a, b string) {
		if count++; count > clashNotes {
			return
		}
		why := "in case"
		if norm.NFC.String(a) == norm.NFC.String(b) {
			why = "in their Unicode form"
		}
		x.note(fmt.Sprintf("%q and %q differ only %s; on some systems they are one", clip(a), clip(b), why))
	}
	for i := range steps {
		if n := steps[i].Local; n != nil {
			if f := fold(n.Path); f != n.Path {
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

// fold is what a path is where neither case nor composition counts. Most paths are that already.
func fold(path string) string {
	for i := range len(path) {
		if c := path[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
			return strings.ToLower(norm.NFC.String(path))
		}
	}
	return path
}
