package dockertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tools are the programs of the image Tools, at the paths of the system's packages: one that a user has installed elsewhere may be a
// script that needs more files.
var tools = []string{"/bin/bash", "/usr/bin/python3", "/usr/bin/jq"}

// skippedFolders are the folders of Python's library that no test needs.
var skippedFolders = []string{"test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "pydoc_data", "__pycache__", "dist-packages", "site-packages"}

// addTools adds the tools at their own paths, with the libraries they are linked with.
func addTools(w *tar.Writer) error {
	files := make(map[string]bool)
	for _, path := range tools {
		libraries, err := libraries(path)
		if err != nil {
			return err
		}
		for _, f := range append(libraries, path) {
			files[f] = true
		}
	}
	library, err := exec.Command("/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").Output()
	if err != nil {
		return fmt.Errorf("find python3's library: %w", err)
	}
	err = filepath.WalkDir(strings.TrimSpace(string(library)), func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains(skippedFolders, e.Name()):
			return fs.SkipDir
		case !e.IsDir():
			files[path] = true
		}
		return nil
	})
	for _, f := range slices.Sorted(maps.Keys(files)) {
		err = errors.Join(err, addFile(w, f))
	}
	return err
}

// libraries returns the libraries that the loader maps for a program, and the loader.
func libraries(path string) ([]string, error) {
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", path, err)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if filepath.IsAbs(word) {
				list = append(list, word)
			}
		}
	}
	return list, nil
}

// addFile adds the file that a path leads to, as a regular file. It skips a broken link.
func addFile(w *tar.Writer, path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, statErr := os.Stat(path)
	if err := errors.Join(err, statErr); err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(filepath.Clean(path), "/"), Mode: int64(info.Mode().Perm()), Size: int64(len(b))}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = bytes.NewReader(b).WriteTo(w)
	return err
}
