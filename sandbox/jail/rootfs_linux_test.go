package jail

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/schemas"
)

// writeTar writes a tar of these entries; a regular file's content is its Linkname.
func writeTar(t *testing.T, zipped bool, entries ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		testkit.Must(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(content))
		testkit.Must(t, err)
	}
	testkit.Must(t, w.Close())
	data := b.Bytes()
	if zipped {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, err := g.Write(data)
		testkit.Must(t, err)
		testkit.Must(t, g.Close())
		data = z.Bytes()
	}
	path := filepath.Join(t.TempDir(), "root.tar")
	testkit.Must(t, os.WriteFile(path, data, 0o600))
	return path
}

// TestRootfsTarIsUnpackedOnce: a tar is the root, unpacked once for all jails, without set-id bits.
func TestRootfsTarIsUnpackedOnce(t *testing.T) {
	folder := t.TempDir()
	path, err := bin.Extract(folder)
	testkit.Must(t, err)
	program, err := os.ReadFile(path)
	testkit.Must(t, err)
	for name, zipped := range map[string]bool{"plain": false, "gzip": true} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			root := writeTar(t, zipped,
				tar.Header{Typeflag: tar.TypeReg, Name: "./opt/tools/prog", Linkname: string(program), Mode: 0o4755},
				tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "opt/tools/prog"},
				tar.Header{Typeflag: tar.TypeSymlink, Name: "/soft", Linkname: "/opt/tools/prog"},
				tar.Header{Typeflag: tar.TypeChar, Name: "dev/mem", Mode: 0o666, Devmajor: 1, Devminor: 1},
			)
			for _, id := range []string{"a", "b"} {
				s := create(t, p, sandbox.Spec{ID: id, Workspace: t.TempDir(), Rootfs: root})
				for _, prog := range []string{"/opt/tools/prog", "/hard", "/soft"} {
					wantSupervisorUsage(t, s, prog)
				}
			}
			unpacked, err := os.ReadDir(filepath.Join(p.dir, "rootfs"))
			testkit.Must(t, err)
			if len(unpacked) != 1 {
				t.Fatalf("unpacked folders = %v, want one", unpacked)
			}
			info, err := os.Stat(filepath.Join(p.dir, "rootfs", unpacked[0].Name(), "opt/tools/prog"))
			testkit.Must(t, err)
			if want := fs.FileMode(0o755); info.Mode() != want {
				t.Errorf("mode of prog = %v, want %v", info.Mode(), want)
			}
		})
	}
}

// TestRootfsTarCannotEscape: a tar that leads out of the root is refused, and leaves no file.
func TestRootfsTarCannotEscape(t *testing.T) {
	outside := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("x"), 0o600))
	file := tar.Header{Typeflag: tar.TypeReg, Name: "file", Linkname: "y", Mode: 0o644}
	p := newProvider(t)
	for name, path := range map[string]string{
		"above":             writeTar(t, false, tar.Header{Typeflag: tar.TypeReg, Name: "../" + filepath.Base(outside) + "/file", Linkname: "y", Mode: 0o644}),
		"by a link":         writeTar(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, tar.Header{Typeflag: tar.TypeReg, Name: "out/file", Linkname: "y", Mode: 0o644}),
		"by links upwards":  writeTar(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "../../../../.." + outside}, tar.Header{Typeflag: tar.TypeReg, Name: "out/file", Linkname: "y", Mode: 0o644}),
		"hard link":         writeTar(t, false, tar.Header{Typeflag: tar.TypeLink, Name: "passwd", Linkname: "../../../../../../etc/passwd"}),
		"hard link through": writeTar(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, tar.Header{Typeflag: tar.TypeLink, Name: "taken", Linkname: "out/file"}),
		"folder by a link":  writeTar(t, false, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, tar.Header{Typeflag: tar.TypeDir, Name: "out/made/below", Mode: 0o755}),
		"not a tar":         filepath.Join(outside, "file"),
		"empty":             writeTar(t, false),
		"cut off":           truncate(t, writeTar(t, false, file, file)),
		"missing":           "/no/such/tar",
		"a device":          "/dev/null",
	} {
		_, err := p.Create(t.Context(), sandbox.Spec{ID: "a", Workspace: t.TempDir(), Rootfs: path})
		sandboxtest.WantCode(t, name, err, schemas.CodeInvalidArgument)
	}
	sandboxtest.WantNoFiles(t, filepath.Join(p.dir, "rootfs", "*"))
	// A link in place of /var, where /var/tmp is created while the host's files are visible.
	s := create(t, p, sandbox.Spec{ID: "var", Workspace: t.TempDir(), Rootfs: writeTar(t, false, file, tar.Header{Typeflag: tar.TypeSymlink, Name: "var", Linkname: outside})})
	if _, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "/file"}); err == nil {
		t.Error("start a file that is not executable: no error, want one")
	}
	err := filepath.WalkDir(outside, func(path string, _ fs.DirEntry, err error) error {
		if path != outside && filepath.Base(path) != "file" {
			t.Errorf("%s was created, want no change outside the root", path)
		}
		return err
	})
	testkit.Must(t, err)
	b, err := os.ReadFile(filepath.Join(outside, "file"))
	testkit.Must(t, err)
	testkit.Equal(t, "the file outside the root", string(b), "x")
}

// truncate cuts a file to half its size.
func truncate(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()/2-256)
	}
	testkit.Must(t, err)
	return path
}
