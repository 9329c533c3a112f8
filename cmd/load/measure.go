package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// shownErrors is how many errors of an operation are printed.
const shownErrors = 3

// measured is what the operations took, and their errors.
type measured struct {
	mu     sync.Mutex
	took   map[string][]time.Duration // of those without an error
	failed map[string][]error
}

// time calls f, and notes how long it took since begin.
func (m *measured) time(op string, begin time.Time, f func() error) {
	err := f()
	took := time.Since(begin)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.took == nil {
		m.took, m.failed = make(map[string][]time.Duration), make(map[string][]error)
	}
	if err != nil {
		m.failed[op] = append(m.failed[op], err)
		return
	}
	m.took[op] = append(m.took[op], took)
}

func (m *measured) firstError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range operations() {
		if errs := m.failed[op]; len(errs) > 0 {
			return fmt.Errorf("%s: %w", op, errs[0])
		}
	}
	return nil
}

// report prints a table. Errors: that there were errors, or an operation that was never done.
func (m *measured) report(to io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OPERATION\tDONE\tERRORS\tP50 MS\tP99 MS\tMAX MS")
	var shown []error
	errs, idle := 0, 0
	for _, op := range operations() {
		took, failed := slices.Sorted(slices.Values(m.took[op])), m.failed[op]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", op, len(took), len(failed), percentile(took, 50), percentile(took, 99), percentile(took, 100))
		for _, err := range failed[:min(shownErrors, len(failed))] {
			shown = append(shown, fmt.Errorf("%s: %w", op, err))
		}
		errs += len(failed)
		if len(took)+len(failed) == 0 {
			idle++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, err := range shown {
		fmt.Fprintln(to, err)
	}
	if errs > 0 || idle > 0 {
		return fmt.Errorf("%d errors, and %d operations that were never done", errs, idle)
	}
	return nil
}

// percentile is that of sorted durations, in milliseconds; - for none.
func percentile(sorted []time.Duration, percent int) string {
	if len(sorted) == 0 {
		return "-"
	}
	i := (len(sorted)*percent + 99) / 100 // the smallest number that so many percent do not exceed
	return fmt.Sprintf("%.1f", float64(sorted[max(0, i-1)])/float64(time.Millisecond))
}
