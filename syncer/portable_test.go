package syncer_test

import (
	"encoding/json"
	"testing"
	"time"
)

// checkPortable reads a state as a tool does that knows the documented format alone.
func checkPortable(t *testing.T, data []byte) {
	t.Helper()
	var s struct {
		Version      string    `json:"version"`
		LastSyncedAt time.Time `json:"last_synced_at"`
		Files        []struct {
			Path       string    `json:"path"`
			Checksum   string    `json:"checksum"`
			Size       int64     `json:"size"`
			ModifiedAt time.Time `json:"modified_at"`
		} `json:"files"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if s.Version != "1.0" || s.LastSyncedAt.IsZero() || len(s.Files) < 10 {
		t.Errorf("%s %s %d files", s.Version, s.LastSyncedAt, len(s.Files))
	}
	for _, f := range s.Files {
		if f.Path == "" || len(f.Checksum) != 32 || f.ModifiedAt.IsZero() {
			t.Errorf("%+v", f)
		}
		if f.Path == "zero" && f.Checksum != "d41d8cd98f00b204e9800998ecf8427e" {
			t.Errorf("%+v", f)
		}
	}
}
