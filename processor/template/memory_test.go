package template_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/processor/template"
)

// Hardening 1: no file takes more than a fixed amount of memory, whatever is in it.
func TestParsingTakesBoundedMemory(t *testing.T) {
	const size = 127 << 10
	for name, element := range map[string]string{
		"lists": "[", "items": "- ", "entries": "a: 1\n", "documents": "---\n", "flow": "[],", "anchors": "&a [*a,*a],", "keys": "? ", "text": "x\n",
	} {
		for _, before := range []string{"", "name: a\nenv: {a: [", "name: a\nhooks:\n"} {
			text := before + strings.Repeat(element, (size-len(before))/len(element))
			var at, after runtime.MemStats
			runtime.ReadMemStats(&at)
			_, err := template.Parse("a.yaml", []byte(text))
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - at.TotalAlloc; took > 128<<20 {
				t.Errorf("%s after %q: a file of %d bytes took %d of memory, want at most 128 MiB (error: %.200v)", name, before, len(text), took, err)
			}
		}
	}
}
