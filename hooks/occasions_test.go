package hooks

import (
	"fmt"
	"testing"
)

func TestOccasionsAreBoundedAndForgotten(t *testing.T) {
	s := newOccasions(10)
	acquire := func(key occasionKey) *occasion {
		t.Helper()
		o, err := s.acquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	wantCount := func(want int) {
		t.Helper()
		if got := len(s.byKey); got != want {
			t.Errorf("%d occasions by key, want %d", got, want)
		}
		if got := s.order.Len(); got != want {
			t.Errorf("%d occasions in order, want %d", got, want)
		}
	}
	held := acquire(occasionKey{thread: "held"})
	for i := range 100 {
		o := acquire(occasionKey{thread: "t", id: fmt.Sprint(i)})
		o.done["x"] = true
		s.release(o)
	}
	wantCount(10)
	if s.byKey[held.key] != held {
		t.Error("an occasion in use was dropped")
	}
	if o := s.byKey[occasionKey{thread: "t", id: "99"}]; o == nil || !o.done["x"] {
		t.Errorf("newest occasion = %+v, want x done", o)
	}
	s.forget("", "t")
	wantCount(1)
	s.release(held)
	s.forget("", "held")
	wantCount(0)
}
