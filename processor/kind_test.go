package processor

import (
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestResolve(t *testing.T) {
	type providers = map[string]sandbox.Provider
	some := providers{"jail": &stage{}, "docker": &stage{}}
	both := Config{Worker: "w", Providers: some, DefaultProvider: "jail", ImageProvider: "docker", Image: "standard"}
	for what, tt := range map[string]struct {
		cfg       Config
		asks, got kind
		code      schemas.Code
	}{
		"nothing":             {both, kind{}, kind{"jail", ""}, ""},
		"auto":                {both, kind{"auto", ""}, kind{"jail", ""}, ""},
		"an image":            {both, kind{"", "x"}, kind{"docker", "x"}, ""},
		"auto, an image":      {both, kind{"auto", "x"}, kind{"docker", "x"}, ""},
		"docker":              {both, kind{"docker", ""}, kind{"docker", "standard"}, ""},
		"docker, an image":    {both, kind{"docker", "x"}, kind{"docker", "x"}, ""},
		"jail, an image":      {both, kind{"jail", "x"}, kind{}, schemas.CodeInvalidArgument},
		"not offered":         {both, kind{"local", ""}, kind{}, schemas.CodePermissionDenied},
		"no images here":      {Config{Providers: some, DefaultProvider: "jail"}, kind{"", "x"}, kind{}, schemas.CodeInvalidArgument},
		"no default":          {Config{Providers: some}, kind{}, kind{}, schemas.CodeUnavailable},
		"no default, by name": {Config{Providers: some}, kind{"jail", ""}, kind{"jail", ""}, ""},
	} {
		w := &Worker{cfg: tt.cfg}
		got, err := w.resolve(tt.asks)
		if schemas.CodeOf(err) != tt.code && (err != nil || tt.code != "") || err == nil && got != tt.got {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}

func TestAKindFits(t *testing.T) {
	image := &schemas.Session{Thread: "t", Provider: "docker", Image: "x"}
	jail := &schemas.Session{Thread: "t", Provider: "jail"}
	for what, tt := range map[string]struct {
		s    *schemas.Session
		asks kind
		ok   bool
	}{
		"nothing": {image, kind{}, true}, "auto": {image, kind{"auto", ""}, true}, "the same": {image, kind{"docker", "x"}, true},
		"its image": {image, kind{"", "x"}, true}, "another image": {image, kind{"docker", "y"}, false}, "another provider": {image, kind{"jail", ""}, false},
		"an image in a jail": {jail, kind{"", "x"}, false}, "a jail": {jail, kind{"jail", ""}, true},
	} {
		err := tt.asks.fits(tt.s)
		if (err == nil) != tt.ok || err != nil && schemas.CodeOf(err) != schemas.CodeConflict {
			t.Errorf("%s: %v", what, err)
		}
	}
}
