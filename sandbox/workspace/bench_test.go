package workspace

import "testing"

// BenchmarkMeasure counts a workspace of 1,000 files in one folder, which every process's end does.
func BenchmarkMeasure(b *testing.B) {
	dir := b.TempDir()
	fill(b, dir, "f", 1000)
	for b.Loop() {
		if _, err := Measure(dir); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMeasureEmpty is what it costs where there is nothing.
func BenchmarkMeasureEmpty(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		if _, err := Measure(dir); err != nil {
			b.Fatal(err)
		}
	}
}
