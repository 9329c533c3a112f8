package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	src := flag.String("src", ".", "folder of the schemas package's source")
	out := flag.String("out", "json", "folder to write the JSON Schemas to")
	flag.Parse()
	if err := run(*src, *out); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

// run writes every schema, and removes files of types that the contract no longer has.
func run(src, out string) error {
	files, err := Generate(src)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range stale {
		if _, ok := files[filepath.Base(path)]; ok {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(out, name), body, 0o644); err != nil {
			return err
		}
	}
	return nil
}
