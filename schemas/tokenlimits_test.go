package schemas_test

import (
	"math"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestTokenLimits(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]schemas.TokenLimits{
		"a negative rate": {Rate: -1}, "a rate that is no number": {Rate: math.NaN()}, "an endless rate": {Rate: math.Inf(1)}, "a tiny rate": {Rate: 1e-9},
		"a negative burst": {Burst: -1}, "a negative number": {Sessions: -1}, "a huge number": {BytesPerHour: math.MaxInt64},
	} {
		if schemas.CodeOf(l.Validate()) != schemas.CodeInvalidArgument {
			t.Errorf("%s: error = %v, want invalid_argument", name, l.Validate())
		}
	}
	standard, none := schemas.DefaultTokenLimits(), schemas.TokenLimits{}
	testkit.Must(t, standard.Validate())
	testkit.Must(t, none.Validate())
	testkit.Must(t, standard.Within(&none))
	testkit.Must(t, standard.Within(&standard))
	testkit.Equal(t, "a token without limits", schemas.CodeOf(none.Within(&standard)), schemas.CodePermissionDenied)
	for _, small := range []schemas.TokenLimits{{Rate: 1}, {Rate: 1, Burst: 1}, {Concurrent: 1}, {BytesPerHour: 1}, {Sessions: 1}, {Processes: 1}} {
		testkit.Equal(t, "more than the creator", schemas.CodeOf(standard.Within(&small)), schemas.CodePermissionDenied)
		lowered := standard.AtMost(&small)
		testkit.Must(t, lowered.Within(&small))
		lowered = none.AtMost(&small)
		testkit.Equal(t, "no limits, lowered", lowered.Within(&small), nil)
	}
	testkit.Equal(t, "bursts of a small rate", (&schemas.TokenLimits{Rate: 0.1}).Bursts(), int64(1))
}
