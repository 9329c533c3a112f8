package docker

import (
	"testing"

	"github.com/sluice-dev/sluice/sandbox/registry/registrytest"
)

func TestRecordReadsFileOfEarlierVersion(t *testing.T) {
	want := record{Record: registrytest.Record(), Container: "4f66ad9a0b2e"}
	want.Spec.Image = "python:3.13"
	registrytest.Golden[*Sandbox](t, "testdata/record.json", want)
}
