package template_test

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 11: numbers are printed as people write them, without a YAML tag.
func TestNumbersArePrintedPlainly(t *testing.T) {
	for cpus, want := range map[float64]string{1: "cpus: 1\n", 1.5: "cpus: 1.5\n", 0.25: "cpus: 0.25\n"} {
		body, err := template.YAML(&schemas.Template{Name: "a", Limits: schemas.TemplateLimits{CPUs: cpus}})
		testkit.Must(t, err)
		testkit.Equal(t, want+" in "+string(body), strings.Contains(string(body), want), true)
		again, err := template.Parse("a.yaml", body)
		testkit.Must(t, err)
		testkit.Equal(t, "CPUs", again[0].Limits.CPUs, cpus)
	}
}
