package files

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// do runs an operation in a folder, without limits.
func do(t testing.TB, dir string, in io.Reader, args ...string) (string, *program, error) {
	t.Helper()
	return doWithin(t, dir, "-1", in, args...)
}

// doWithin is do in a workspace with room for this many files.
func doWithin(t testing.TB, dir, roomFiles string, in io.Reader, args ...string) (string, *program, error) {
	t.Helper()
	t.Chdir(dir)
	var out bytes.Buffer
	p := &program{in: in, out: &out}
	idle := time.NewTimer(time.Hour)
	defer idle.Stop()
	err := p.run(append([]string{"-1", "-1", roomFiles}, args...), idle)
	return out.String(), p, err
}

// names are the paths of records.
func names(records string) (paths []string) {
	fields := strings.Split(records, "\x00")
	for record := range slices.Chunk(fields[:len(fields)-1], RecordFields) {
		paths = append(paths, record[0])
	}
	return paths
}

func wantCode(t testing.TB, what string, err error, want string) {
	t.Helper()
	if err == nil || describe(err).code != want {
		t.Errorf("%s: error %v, want %s", what, err, want)
	}
}

// A folder with more names than can be held is listed in pages, and searched up to a limit. Names that are not UTF-8 end no list early, and
// no list begins again.
func TestFolderOfManyNames(t *testing.T) {
	dir := t.TempDir()
	const n = 5_000
	for i := range n {
		name := strconv.Itoa(i)
		if i%10 == 0 {
			name = "\xff" + name
		}
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	var all []string
	for after, page := "", 0; ; page++ {
		out, _, err := do(t, dir, nil, OpList, ".", after, "101")
		testkit.Must(t, err)
		got := names(out)
		if len(got) == 0 || page > n {
			break
		}
		if len(got) > 101 {
			t.Fatalf("a page has %d names", len(got))
		}
		all = append(all, got...)
		after = shown(got[len(got)-1])
	}
	testkit.Equal(t, "names, sorted", []any{len(all), slices.IsSortedFunc(all, byShown)}, []any{n, true})
	out, _, err := do(t, dir, nil, OpSearch, ".", "*7", "", "101")
	testkit.Must(t, err)
	testkit.Equal(t, "found", len(names(out)), 101)
}

// Many names that look the same to the caller do not make the list begin again.
func TestNamesThatLookAlike(t *testing.T) {
	dir := t.TempDir()
	for i := range 50 {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, strings.Repeat("\xff", i+1)), nil, 0o600))
	}
	out, _, err := do(t, dir, nil, OpList, ".", "", "11")
	testkit.Must(t, err)
	testkit.Equal(t, "names on the first page", len(names(out)), 11)
	out, _, err = do(t, dir, nil, OpList, ".", "\uFFFD", "11")
	testkit.Must(t, err)
	testkit.Equal(t, "names on the second page", len(names(out)), 0)
}

// The folders that a walk has still to visit are bounded.
func TestWalkIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder"+strconv.Itoa(i)), 0o700))
	}
	root, err := os.OpenRoot(dir)
	testkit.Must(t, err)
	defer root.Close()
	visit := func(*os.Root, string, string, os.FileInfo) error { return nil }
	wantCode(t, "walk", walk(root, ".", 700, visit), codeLimit)
	testkit.Must(t, walk(root, ".", 800, visit))
}

// archive is a tar stream of these entries, each a file of one byte.
func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size, h.Mode = tar.TypeReg, 1, 0o640
		}
		testkit.Must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write(make([]byte, h.Size))
			testkit.Must(t, err)
		}
	}
	testkit.Must(t, w.Close())
	return b.Bytes()
}

// Folders that a path implies count for the limit as files do.
func TestImpliedFoldersCount(t *testing.T) {
	deep := strings.Repeat("d/", 20) + "file"
	for what, args := range map[string][]string{"upload": {OpUpload, ""}, "write": {OpWrite, deep, "", Yes}, "mkdir": {OpMkdir, deep, "", Yes}} {
		dir := t.TempDir()
		_, _, err := doWithin(t, dir, "10", bytes.NewReader(archive(t, &tar.Header{Name: deep})), args...)
		wantCode(t, what, err, codeLimit)
		made := 0
		testkit.Must(t, filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { made++; return nil }))
		testkit.Equal(t, what+": folders that were made", made-1, 10)
		_, p, err := doWithin(t, t.TempDir(), "21", bytes.NewReader(archive(t, &tar.Header{Name: deep})), args...)
		testkit.Must(t, err)
		testkit.Equal(t, what+": files of the reply", p.files, int64(1))
	}
}

// Entries of every bad kind are refused, and nothing half done is left.
func TestBadEntries(t *testing.T) {
	for what, entry := range map[string]*tar.Header{
		"traversal": {Name: "a/../../x"}, "300 bytes": {Name: strings.Repeat("n", 300)}, "no name": {Name: "./."},
		"fifo that leads out":      {Name: "../fifo", Typeflag: tar.TypeFifo},
		"hard link that leads out": {Name: "link", Typeflag: tar.TypeLink, Linkname: "../outside"},
	} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "workspace")
		testkit.Must(t, os.Mkdir(dir, 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(parent, "outside"), nil, 0o600))
		_, _, err := do(t, dir, bytes.NewReader(archive(t, entry)), OpUpload, "")
		wantCode(t, what, err, codeInvalid)
		left, err := os.ReadDir(dir)
		testkit.Must(t, err)
		if len(left) > 0 {
			t.Errorf("%s: %v is left", what, left)
		}
	}
	dir := t.TempDir()
	_, _, err := do(t, dir, bytes.NewReader(archive(t, &tar.Header{Name: "new\nline"})), OpUpload, "")
	testkit.Must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "new\nline")); err != nil {
		t.Error(err)
	}
}

// Named pipes and devices of a stream are left out, also with a content that they cannot have. What follows is extracted.
func TestPipesAndDevicesAreLeftOut(t *testing.T) {
	for what, kind := range map[string]byte{"fifo": tar.TypeFifo, "char": tar.TypeChar, "block": tar.TypeBlock} {
		for _, size := range []int64{0, 1000} {
			stream := append(tarBlock("left/out", "", fileMode, 0, kind, size), make([]byte, padded(size))...)
			stream = append(stream, archive(t, &tar.Header{Name: "next"})...)
			dir := t.TempDir()
			_, p, err := do(t, dir, bytes.NewReader(stream), OpUpload, "")
			testkit.Must(t, err)
			left, err := os.ReadDir(dir)
			testkit.Must(t, err)
			testkit.Equal(t, what+": names", []string{left[0].Name(), left[len(left)-1].Name()}, []string{"next", "next"})
			testkit.Equal(t, what+": files of the reply", p.files, int64(1))
		}
	}
}

// A file where a folder is to be made is a conflict, as it is for all that exists.
func TestFileInTheWayOfAFolder(t *testing.T) {
	dup := archive(t, &tar.Header{Name: "dup"}, &tar.Header{Name: "dup/", Typeflag: tar.TypeDir, Mode: 0o755})
	below := archive(t, &tar.Header{Name: "dup"}, &tar.Header{Name: "dup/x"})
	for what, v := range map[string]struct {
		in   []byte
		args []string
	}{
		"mkdir": {nil, []string{OpMkdir, "file", "", Yes}}, "mkdir below": {nil, []string{OpMkdir, "file/a/b", "", Yes}},
		"mkdir below a link": {nil, []string{OpMkdir, "link/a", "", Yes}}, "write below": {nil, []string{OpWrite, "file/a", "", Yes}},
		"upload": {below, []string{OpUpload, "file"}}, "folder over a file": {dup, []string{OpUpload, ""}}, "file below a file": {below, []string{OpUpload, ""}},
		"move a folder": {nil, []string{OpMove, "folder", "file"}}, "move onto a folder": {nil, []string{OpMove, "file", "folder"}},
	} {
		dir := t.TempDir()
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		testkit.Must(t, os.Symlink("file", filepath.Join(dir, "link")))
		_, _, err := do(t, dir, bytes.NewReader(v.in), v.args...)
		wantCode(t, what, err, codeConflict)
	}
}

// FuzzUpload: no stream writes outside of the folder, leaves a temporary file, or fails without a code. What package archive/tar reads as plain
// files and folders is extracted as it says.
func FuzzUpload(f *testing.F) {
	f.Add(archive(f, &tar.Header{Name: "a/b"}, &tar.Header{Name: "c/", Typeflag: tar.TypeDir, Mode: 0o755}, &tar.Header{Name: strings.Repeat("long/", 40) + "x"}))
	f.Add(archive(f, &tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, &tar.Header{Name: "l/x"}))
	f.Add(archive(f, &tar.Header{Name: "f"}, &tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "f"}, &tar.Header{Name: "../x"}))
	f.Add(archive(f, &tar.Header{Name: "gnu", Format: tar.FormatGNU, ModTime: time.Unix(1<<40, 0)}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "workspace")
		testkit.Must(t, os.Mkdir(dir, 0o700))
		root, err := os.OpenRoot(dir)
		testkit.Must(t, err)
		defer root.Close()
		p := &program{root: root, in: bytes.NewReader(stream), out: io.Discard, args: []string{"."}, fileLimit: 1 << 20, roomBytes: 1 << 20, roomFiles: 1000}
		err = p.upload()
		if err != nil && describe(err).text == "" {
			t.Errorf("error %#v has no text", err)
		}
		outside, readErr := os.ReadDir(parent)
		testkit.Must(t, readErr)
		if len(outside) != 1 || p.made > 1000 || p.bytes > 1<<20+copyBuffer {
			t.Errorf("%d names beside the workspace; %d files and %d bytes in it", len(outside)-1, p.made, p.bytes)
		}
		testkit.Must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if strings.HasPrefix(filepath.Base(name), ".sluice-") && !bytes.Contains(stream, []byte(".sluice-")) {
				t.Errorf("%s is left", name)
			}
			return nil // what it cannot read has a mode of the stream's choice
		}))
		if err == nil {
			wantExtracted(t, dir, stream)
		}
	})
}

// wantExtracted compares with package archive/tar, up to the first entry that is no plain file or that it does not read.
func wantExtracted(t *testing.T, dir string, stream []byte) {
	t.Helper()
	want := make(map[string]string)
	for r := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil || h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0 {
			return
		}
		content, err := io.ReadAll(io.LimitReader(r, 1<<20))
		if err != nil {
			return
		}
		want[filepath.Clean(strings.TrimLeft(h.Name, "/"))] = string(content)
	}
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && string(got) != content {
			t.Errorf("%q has %q, want %q", name, got, content)
		} else if os.IsNotExist(err) {
			t.Errorf("%q is missing", name)
		}
	}
}
