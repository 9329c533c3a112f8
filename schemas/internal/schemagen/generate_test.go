package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is checked in must be what the types, their comments and the rules say now, and the same every time.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := Generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range files {
		if !bytes.Equal(body, again[name]) {
			t.Errorf("%s differs from one run to the next", name)
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
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != len(files) {
		t.Errorf("%d files in json, %d types: run go generate ./schemas", len(have), len(files))
	}
}

func TestRunRemovesStaleFiles(t *testing.T) {
	out := t.TempDir()
	stale := filepath.Join(out, "gone.json")
	if err := os.WriteFile(stale, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run("../..", out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("a file of no type was left: %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "command.json")); err != nil {
		t.Error(err)
	}
}

func TestSourceThatIsNotThere(t *testing.T) {
	if _, err := Generate(t.TempDir()); err == nil {
		t.Error("an empty folder gave schemas")
	}
}
