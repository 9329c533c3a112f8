package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func TestPlanDependsOnTheSeedAlone(t *testing.T) {
	kinds, err := chooseKinds("-full-evt", 3)
	testkit.Must(t, err)
	c := &config{seed: 7, duration: time.Minute, kinds: kinds}
	all := plan(c)
	if len(all) < 10 {
		t.Errorf("%d faults in a minute, want at least 10", len(all))
	}
	same := cmp.AllowUnexported(fault{})
	testkit.Equal(t, "the second plan", plan(c), all, same)
	c.seed = 8
	if cmp.Equal(plan(c), all, same) {
		t.Error("another seed has the same plan")
	}
	for _, f := range all {
		if f.kind == "full-evt" || f.at > c.duration || f.lasts > 10*time.Second {
			t.Errorf("fault %+v: want none of kind full-evt, none after the end, none that lasts more than 10 s", f)
		}
	}
}

func TestChooseKinds(t *testing.T) {
	for _, test := range []struct {
		list    string
		servers int
		want    []string
	}{
		{"none", 1, nil},
		{"flood,stepdown,server-kill", 3, []string{"flood", "stepdown", "server-kill"}},
		{"flood,stepdown,server-kill", 1, []string{"flood"}},
	} {
		got, err := chooseKinds(test.list, test.servers)
		testkit.Must(t, err)
		testkit.Equal(t, test.list, got, test.want)
	}
	if _, err := chooseKinds("flod", 1); err == nil {
		t.Error("no error for an unknown kind")
	}
}
