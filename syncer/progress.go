package syncer

import "sync/atomic"

// meter counts the work of one phase.
type meter struct {
	report       func(Progress)
	phase        string
	files, bytes atomic.Int64
	totalFiles   int64
	totalBytes   int64
}

func newMeter(report func(Progress), phase string, files []*Node) *meter {
	m := &meter{report: report, phase: phase, totalFiles: int64(len(files))}
	for _, n := range files {
		m.totalBytes += n.Size
	}
	return m
}

// add counts files that are done, and bytes, which for a large file come before that.
func (m *meter) add(files, bytes int64) {
	m.report(Progress{
		Phase: m.phase, Files: m.files.Add(files), FilesTotal: m.totalFiles,
		Bytes: m.bytes.Add(bytes), BytesTotal: m.totalBytes,
	})
}
