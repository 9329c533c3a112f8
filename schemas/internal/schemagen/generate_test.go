package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// The generated files must match the types, their comments and the rules, and be the same on each run.
func TestGenerateMatchesCheckedInFiles(t *testing.T) {
	files, err := Generate("../..")
	testkit.Must(t, err)
	again, err := Generate("../..")
	testkit.Must(t, err)
	for name, body := range files {
		if !bytes.Equal(body, again[name]) {
			t.Errorf("%s differs between two runs", name)
		}
		have, err := os.ReadFile(filepath.Join("../../json", name))
		if err != nil {
			t.Fatalf("%v: run go generate ./schemas", err)
		}
		if !bytes.Equal(body, have) {
			t.Errorf("json/%s is out of date: run go generate ./schemas", name)
		}
	}
	have, err := filepath.Glob("../../json/*.json")
	testkit.Must(t, err)
	if len(have) != len(files) {
		t.Errorf("json has %d files, want %d: run go generate ./schemas", len(have), len(files))
	}
}

func TestRunRemovesStaleFiles(t *testing.T) {
	out := t.TempDir()
	stale := filepath.Join(out, "gone.json")
	testkit.Must(t, os.WriteFile(stale, []byte("{}"), 0o600))
	testkit.Must(t, run("../..", out))
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the stale file was not removed: %v", err)
	}
	_, err := os.Stat(filepath.Join(out, "command.json"))
	testkit.Must(t, err)
}

func TestGenerateRefusesEmptyFolder(t *testing.T) {
	if _, err := Generate(t.TempDir()); err == nil {
		t.Error("Generate returned no error for an empty folder")
	}
}
