package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func TestReport(t *testing.T) {
	t.Parallel()
	var m measured
	for _, op := range operations() {
		for n := range 100 {
			m.time(op, time.Now().Add(-time.Duration(n)*time.Hour), func() error { return nil })
		}
	}
	var out strings.Builder
	testkit.Must(t, m.report(&out))
	line, _, _ := strings.Cut(out.String()[strings.Index(out.String(), opExecute):], "\n")
	if f := strings.Fields(line); len(f) != 6 || f[1] != "100" || f[2] != "0" || !strings.HasPrefix(f[3], "176400") || !strings.HasPrefix(f[4], "352800") ||
		!strings.HasPrefix(f[5], "356400") {
		t.Errorf("the line is %q", line)
	}
	testkit.Equal(t, "percentile of nothing", percentile(nil, 99), "-")
}

// A status that is not the documented one ends the load with an error that has the answer.
func TestAnErrorFailsTheLoad(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the pool is full", http.StatusServiceUnavailable)
	}))
	defer s.Close()
	l := newLoad()
	l.url, l.sessions = s.URL, 3
	err := l.run(testkit.Context(t))
	if err == nil {
		t.Fatal("the load succeeded")
	}
	testkit.Contains(t, "error", err.Error(), "503")
	testkit.Contains(t, "error", err.Error(), "the pool is full")
	var out strings.Builder
	if l.report(&out) == nil {
		t.Error("the report of a load with errors is no error")
	}
	testkit.Contains(t, "report", out.String(), "the pool is full")
}

// An operation that was never done is no success.
func TestAnIdleLoadIsAnError(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if new(measured).report(&out) == nil {
		t.Error("the report of no operations is no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := newLoad()
	l.url, l.sessions = "http://127.0.0.1:1", 1
	if l.run(ctx) == nil {
		t.Error("a load that was canceled succeeded")
	}
}
