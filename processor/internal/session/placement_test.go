package session

import (
	"testing"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestResolvePlacement(t *testing.T) {
	type P = Placement
	some := map[string]sandbox.Provider{"jail": provider{}, "docker": provider{}}
	both := Config{Providers: some, DefaultProvider: "jail", ImageProvider: "docker", Image: "standard"}
	for name, k := range map[string]struct {
		cfg       Config
		asks, got P
		code      schemas.Code
	}{
		"nothing":             {both, P{}, P{"jail", ""}, ""},
		"auto":                {both, P{"auto", ""}, P{"jail", ""}, ""},
		"an image":            {both, P{"", "x"}, P{"docker", "x"}, ""},
		"auto, an image":      {both, P{"auto", "x"}, P{"docker", "x"}, ""},
		"docker":              {both, P{"docker", ""}, P{"docker", "standard"}, ""},
		"docker, an image":    {both, P{"docker", "x"}, P{"docker", "x"}, ""},
		"jail, an image":      {both, P{"jail", "x"}, P{}, schemas.CodeInvalidArgument},
		"not offered":         {both, P{"local", ""}, P{}, schemas.CodePermissionDenied},
		"no images here":      {Config{Providers: some, DefaultProvider: "jail"}, P{"", "x"}, P{}, schemas.CodeInvalidArgument},
		"no default":          {Config{Providers: some}, P{}, P{}, schemas.CodeUnavailable},
		"no default, by name": {Config{Providers: some}, P{"jail", ""}, P{"jail", ""}, ""},
	} {
		k.cfg.Publisher, k.cfg.Background = (&publisher.Publisher{Worker: "w"}), work.NewBackground()
		got, err := New(k.cfg).offer.resolve(k.asks)
		switch {
		case k.code != "" && schemas.CodeOf(err) != k.code:
			t.Errorf("%s: error %v, want code %s", name, err, k.code)
		case k.code == "" && err != nil:
			t.Errorf("%s: error %v, want none", name, err)
		case k.code == "" && got != k.got:
			t.Errorf("%s: got %+v, want %+v", name, got, k.got)
		}
	}
}

type provider struct{ sandbox.Provider }

func TestPlacementFitsSession(t *testing.T) {
	image := &schemas.Session{Thread: "t", Provider: "docker", Image: "x"}
	jail := &schemas.Session{Thread: "t", Provider: "jail"}
	for name, k := range map[string]struct {
		s    *schemas.Session
		asks Placement
		want schemas.Code
	}{
		"nothing":            {image, Placement{}, ""},
		"auto":               {image, Placement{"auto", ""}, ""},
		"the same":           {image, Placement{"docker", "x"}, ""},
		"its image":          {image, Placement{"", "x"}, ""},
		"another image":      {image, Placement{"docker", "y"}, schemas.CodeConflict},
		"another provider":   {image, Placement{"jail", ""}, schemas.CodeConflict},
		"an image in a jail": {jail, Placement{"", "x"}, schemas.CodeConflict},
		"a jail":             {jail, Placement{"jail", ""}, ""},
	} {
		if err := k.asks.fits(k.s); (err != nil) != (k.want != "") || err != nil && schemas.CodeOf(err) != k.want {
			t.Errorf("%s: error %v, want code %q", name, err, k.want)
		}
	}
}

func TestOwnershipFitsItsSessionAlone(t *testing.T) {
	o := ownership{Tenant: "default", Session: "s", Epoch: 5}
	if got, ok := parseOwnership(o.String()); !ok || got != o {
		t.Errorf("parsed %+v, ok %v; want %+v", got, ok, o)
	}
	for _, bad := range []string{"", "{", "{}", `{"tenant":"a.b"}`} {
		if got, ok := parseOwnership(bad); ok {
			t.Errorf("parsed %q as %+v, want it refused", bad, got)
		}
	}
	if cold := (ownership{Tenant: "default", Session: "s", Epoch: 5, Cold: true}); cold.fits(&schemas.Session{ID: "s", Owner: "w", Epoch: 5}, "w") {
		t.Error("a sandbox whose cold start was cut short fits")
	}
	for _, k := range []struct {
		what string
		s    schemas.Session
		fits bool
	}{
		{"as stored", schemas.Session{ID: "s", Owner: "w", Epoch: 5}, true},
		{"stored, and killed before the session was saved", schemas.Session{ID: "s", Owner: "w", Epoch: 4}, true},
		{"another owner", schemas.Session{ID: "s", Owner: "x", Epoch: 5}, false},
		{"its own again, after another's", schemas.Session{ID: "s", Owner: "w", Epoch: 7}, false},
		{"another session of the thread", schemas.Session{ID: "t", Owner: "w", Epoch: 5}, false},
		{"older than the last owner's", schemas.Session{ID: "s", Owner: "w", Epoch: 3}, false},
	} {
		if o.fits(&k.s, "w") != k.fits {
			t.Errorf("%s: fits = %v, want %v", k.what, !k.fits, k.fits)
		}
	}
}
