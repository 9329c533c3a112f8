package node

import (
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestProviderTableNamesProviders(t *testing.T) {
	testkit.Equal(t, "names", ProviderNames(), "auto, jail, docker or local")
	testkit.Equal(t, "image provider", ImageProvider(), schemas.ProviderDocker)
	testkit.Equal(t, "providers of templates", schemas.TemplateProviders(), append([]string{schemas.ProviderAuto}, rowNames()...))
	for _, p := range providerTable() {
		if p.check == nil || p.make == nil {
			t.Errorf("row %s has no check or no constructor", p.name)
		}
		choice, err := Choose(t.Context(), p.name, "")
		testkit.Must(t, err)
		testkit.Equal(t, "choice of --provider "+p.name, choice, Choice{p.name, []string{p.name}})
	}
	_, err := Choose(t.Context(), "moon", "")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	testkit.Equal(t, "error", err.Error(), `unknown provider "moon": use jail, docker or local`)
}

// A runtime, such as gVisor's, is no choice of commands: where one is named, no other provider is offered.
func TestRuntimeNeedsContainersAlone(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nothere") // with an engine: docker's TestRuntimes
	for _, c := range []struct {
		choice Choice
		code   schemas.Code
	}{
		{Choice{schemas.ProviderDocker, []string{schemas.ProviderDocker}}, ""},
		{Choice{schemas.ProviderJail, []string{schemas.ProviderJail}}, schemas.CodeInvalidArgument},
		{Choice{schemas.ProviderDocker, []string{schemas.ProviderDocker, schemas.ProviderJail}}, schemas.CodeInvalidArgument},
	} {
		testkit.Equal(t, "code for "+c.choice.Default, schemas.CodeOf(CheckRuntime(t.Context(), c.choice, "runsc")), c.code)
	}
}

func TestAutoIsNeverLocal(t *testing.T) {
	run := testkit.ShortDir(t)
	checks := CheckProviders(t.Context(), run)
	auto := checks[len(checks)-1]
	testkit.Equal(t, "last check", auto.Provider, schemas.ProviderAuto)
	choice, err := Choose(t.Context(), schemas.ProviderAuto, run)
	if (err == nil) != (auto.Err == nil) {
		t.Errorf("Choose(auto) = %v and its check = %v, want them to agree", err, auto.Err)
	}
	if err != nil {
		testkit.WantCode(t, err, schemas.CodeUnavailable)
		testkit.Contains(t, "error", err.Error(), "--provider local")
	}
	if slices.Contains(choice.Allowed, schemas.ProviderLocal) {
		t.Errorf("auto allows %v, want none that does not isolate", choice.Allowed)
	}
}
