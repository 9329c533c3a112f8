package jail

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/schemas"
)

// archive writes a tar of these entries; a regular file's content is its Linkname.
func archive(t *testing.T, zipped bool, entries ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	if zipped {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		if _, err := g.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		data = z.Bytes()
	}
	path := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRootfsTar: a tar is the root, unpacked once for all jails, and nothing in it runs as its owner.
func TestRootfsTar(t *testing.T) {
	folder := t.TempDir()
	path, err := bin.Extract(folder)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, zipped := range map[string]bool{"plain": false, "gzip": true} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			defer closing(t, p)
			root := archive(t, zipped,
				tar.Header{Typeflag: tar.TypeReg, Name: "./opt/tools/prog", Linkname: string(program), Mode: 0o4755},
				tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "opt/tools/prog"},
				tar.Header{Typeflag: tar.TypeSymlink, Name: "/soft", Linkname: "/opt/tools/prog"},
				tar.Header{Typeflag: tar.TypeChar, Name: "dev/mem", Mode: 0o666, Devmajor: 1, Devminor: 1},
			)
			for _, id := range []string{"a", "b"} {
				s := makeBox(t, p, sandbox.Spec{ID: id, Workspace: t.TempDir(), Rootfs: root})
				for _, prog := range []string{"/opt/tools/prog", "/hard", "/soft"} {
					if out, exit := output(t, s, "p"+filepath.Base(prog), prog, "nonsense"); exit.Code != 125 || !strings.Contains(out, "unknown arguments") {
						t.Errorf("%s: %+v %q", prog, exit, out)
					}
				}
			}
			made, err := os.ReadDir(filepath.Join(p.dir, "rootfs"))
			if err != nil || len(made) != 1 {
				t.Fatalf("%v, %v", made, err)
			}
			info, err := os.Stat(filepath.Join(p.dir, "rootfs", made[0].Name(), "opt/tools/prog"))
			if err != nil || info.Mode() != 0o755 {
				t.Error(info.Mode(), err)
			}
		})
	}
}

// TestRootfsHostile: what would reach out of the root is refused, and nothing is left of it.
func TestRootfsHostile(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := tar.Header{Typeflag: tar.TypeReg, Name: "file", Linkname: "y", Mode: 0o644}
	p := newProvider(t)
	defer closing(t, p)
	for name, path := range map[string]string{
		"above":             archive(t, false, tar.Header{Typeflag: tar.TypeReg, Name: "../" + filepath.Base(outside) + "/file", Linkname: "y", Mode: 0o644}),
		"by a link":         archive(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, tar.Header{Typeflag: tar.TypeReg, Name: "out/file", Linkname: "y", Mode: 0o644}),
		"by links upwards":  archive(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "../../../../.." + outside}, tar.Header{Typeflag: tar.TypeReg, Name: "out/file", Linkname: "y", Mode: 0o644}),
		"hard link":         archive(t, false, tar.Header{Typeflag: tar.TypeLink, Name: "passwd", Linkname: "../../../../../../etc/passwd"}),
		"hard link through": archive(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, tar.Header{Typeflag: tar.TypeLink, Name: "taken", Linkname: "out/file"}),
		"folder by a link":  archive(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, tar.Header{Typeflag: tar.TypeDir, Name: "out/made/below", Mode: 0o755}),
		"not a tar":         filepath.Join(outside, "file"),
		"empty":             archive(t, false),
		"cut off":           cut(t, archive(t, false, file, file)),
		"missing":           "/no/such/tar",
		"a device":          "/dev/null",
	} {
		_, err := p.Create(t.Context(), sandbox.Spec{ID: "a", Workspace: t.TempDir(), Rootfs: path})
		if !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(p.dir, "rootfs", "*"))
	if err != nil || len(left) != 0 {
		t.Error(left, err)
	}
	// A link for a folder in which one is made while the host is in sight.
	s := makeBox(t, p, sandbox.Spec{ID: "var", Workspace: t.TempDir(), Rootfs: archive(t, false, file, tar.Header{Typeflag: tar.TypeSymlink, Name: "var", Linkname: outside})})
	if _, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "/file"}); err == nil {
		t.Error("a file that is not executable has run")
	}
	err = filepath.WalkDir(outside, func(path string, _ fs.DirEntry, err error) error {
		if path != outside && filepath.Base(path) != "file" {
			t.Errorf("%s was made", path)
		}
		return err
	})
	if b, readErr := os.ReadFile(filepath.Join(outside, "file")); err != nil || readErr != nil || string(b) != "x" {
		t.Errorf("%q, %v, %v", b, err, readErr)
	}
}

// cut shortens a file to half.
func cut(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()/2-256)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
