package session

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// TestStopThatIsTooLateToRemoveTheFolderIsRefused: no stop is answered as if it had removed a folder that stays.
func TestStopThatIsTooLateToRemoveTheFolderIsRefused(t *testing.T) {
	kept := stopTermination(&schemas.StopRequest{GraceMS: new(int64)})
	_, err := kept.join(stopTermination(&schemas.StopRequest{}))
	testkit.Must(t, err)
	testkit.Equal(t, "removes the folder", kept.settle(), false)
	_, err = kept.join(stopTermination(&schemas.StopRequest{Delete: true}))
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	_, err = kept.join(stopTermination(&schemas.StopRequest{}))
	testkit.Must(t, err)

	removed := stopTermination(&schemas.StopRequest{GraceMS: new(int64)})
	_, err = removed.join(stopTermination(&schemas.StopRequest{Delete: true}))
	testkit.Must(t, err)
	testkit.Equal(t, "removes the folder", removed.settle(), true)
	_, err = removed.join(stopTermination(&schemas.StopRequest{Delete: true}))
	testkit.Must(t, err)
}
