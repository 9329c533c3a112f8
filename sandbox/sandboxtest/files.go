package sandboxtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/files"
	"github.com/sluice-dev/sluice/schemas"
)

// startFile starts a file operation.
func (f *fixture) startFile(t *testing.T, sb sandbox.Sandbox, req schemas.FileRequest) *testProcess {
	t.Helper()
	cmd, err := files.Command(f.nextID(), sb.Home(), &req)
	testkit.Must(t, err)
	return &testProcess{Process: Start(t, sb, cmd), ctx: f.ctx}
}

// file carries out a file operation, and returns what it printed.
func (f *fixture) file(t *testing.T, sb sandbox.Sandbox, req schemas.FileRequest, content []byte) (string, error) {
	t.Helper()
	return f.endFile(t, f.startFile(t, sb, req), req.Op.In(), content)
}

func (f *fixture) endFile(t *testing.T, r *testProcess, in bool, content []byte) (string, error) {
	t.Helper()
	if in {
		_ = r.WriteStdin(f.ctx, content) // a refused operation does not read it
		testkit.Must(t, r.CloseStdin())
	}
	r.readAll(t)
	exit, err := r.Wait(f.ctx)
	testkit.Must(t, err)
	testkit.Must(t, r.Release())
	_, _, err = files.Outcome(r.stderr.Bytes(), exit)
	return r.stdout.String(), err
}

// wantWorkspace fails the test unless these are the names in the workspace.
func (f *fixture) wantWorkspace(t *testing.T, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(f.workspace)
	testkit.Must(t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	testkit.Equal(t, "names in the workspace", got, append([]string{}, want...))
}

// What the program for files does in a sandbox.
var fileTests = []test{
	{"WrittenAsTheSandboxsUser", func(t *testing.T, f *fixture) {
		content := pseudoRandom(3 << 20)
		_, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileWrite, Path: filepath.Join(f.Home(), "a/b"), Parents: true}, content)
		testkit.Must(t, err)
		testkit.Equal(t, "owner", f.output(t, "stat -c %u a/b"), f.output(t, "id -u"))
		got, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileRead, Path: "a/b"}, nil)
		testkit.Must(t, err)
		if got != string(content) {
			t.Errorf("%d bytes differ from the %d that were written", len(got), len(content))
		}
		records, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileStat, Path: "a/b"}, nil)
		testkit.Must(t, err)
		entries, rest := files.Entries([]byte(records), 2)
		testkit.Equal(t, "entries and bytes after them", []int{len(entries), len(rest)}, []int{1, 0})
		testkit.Equal(t, "size", entries[0].Size, int64(len(content)))
	}},
	{"LinksDoNotLeadOut", func(t *testing.T, f *fixture) {
		f.output(t, "ln -s /etc out; ln -s ../../.. up; mkfifo pipe; ln -s pipe link")
		for _, path := range []string{"out/passwd", "up/etc/passwd", "pipe", "link"} {
			_, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileRead, Path: path}, nil)
			wantError(t, "read "+path, err, schemas.ErrInvalidArgument)
		}
		_, err := files.Command("p", f.Home(), &schemas.FileRequest{Op: schemas.FileRead, Path: "/etc/passwd"})
		wantError(t, "read /etc/passwd", err, schemas.ErrInvalidArgument)
	}},
	{"LinkSwappedInDuringAWrite", func(t *testing.T, f *fixture) {
		other := strings.TrimSpace(f.output(t, "mkdir dir; mktemp -d"))
		r := f.startFile(t, f, schemas.FileRequest{Op: schemas.FileWrite, Path: "dir/file"})
		testkit.Must(t, r.WriteStdin(f.ctx, pseudoRandom(3<<20))) // more than its pipe holds: it reads, so it has opened the folder
		f.output(t, "mv dir moved; ln -s "+other+" dir; ln -s /etc/passwd moved/file")
		_, err := f.endFile(t, r, true, []byte("end"))
		testkit.Must(t, err)
		testkit.Equal(t, "what is where", f.output(t, "ls -A moved; stat -c '%F %s' moved/file; rmdir "+other), "file\nregular file 3145731\n")
	}},
	{"KilledWriteLeavesNothing", func(t *testing.T, f *fixture) {
		r := f.startFile(t, f, schemas.FileRequest{Op: schemas.FileWrite, Path: "file"})
		testkit.Must(t, r.WriteStdin(f.ctx, pseudoRandom(1<<20)))
		r.kill(t)
		r.readAll(t)
		_, err := r.Wait(f.ctx)
		testkit.Must(t, err)
		f.wantWorkspace(t)
	}},
	{"Limits", func(t *testing.T, f *fixture) {
		limits := sandbox.Limits{FileBytes: 1000, WorkspaceBytes: 100_000, WorkspaceFiles: 10}
		sb := f.create(t, sandbox.Spec{ID: "small", Workspace: f.workspace + "/small", Limits: limits})
		defer func() { testkit.Must(t, sb.Terminate(f.ctx, 0)) }()
		write := schemas.FileRequest{Op: schemas.FileWrite, Path: "file"}
		_, err := f.file(t, sb, write, make([]byte, 1001))
		wantError(t, "write a file that is too large", err, schemas.ErrTooLarge)
		_, err = f.file(t, sb, write, make([]byte, 1000))
		testkit.Must(t, err)
		f.writeFile(t, "small/rest", make([]byte, 99_000), 0o644)
		write.Path = "more"
		_, err = f.file(t, sb, write, make([]byte, 999))
		wantError(t, "write into a full workspace", err, schemas.ErrLimitExceeded)
		_, err = f.file(t, sb, schemas.FileRequest{Op: schemas.FileRemove, Path: "rest"}, nil)
		testkit.Must(t, err)
		for _, name := range strings.Fields("1 2 3 4 5 6 7 8 9 10 11") {
			if _, err = f.file(t, sb, schemas.FileRequest{Op: schemas.FileMkdir, Path: name}, nil); err != nil {
				break
			}
		}
		wantError(t, "make more folders than allowed", err, schemas.ErrLimitExceeded)
		entries, err := os.ReadDir(f.workspace + "/small")
		testkit.Must(t, err)
		testkit.Equal(t, "entries", len(entries), 10)
	}},
	{"ManyNames", func(t *testing.T, f *fixture) {
		f.output(t, "mkdir many; cd many; i=0; while [ $i -lt 120 ]; do : >$i; i=$((i+1)); done")
		records, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileList, Path: "many", After: "1", Limit: 3}, nil)
		testkit.Must(t, err)
		entries, rest := files.Entries([]byte(records), 3)
		testkit.Equal(t, "entries", []string{entries[0].Path, entries[1].Path, entries[2].Path}, []string{"many/10", "many/100", "many/101"})
		testkit.Equal(t, "one more", bytes.Count(rest, []byte{0}) > 0, true)
	}},
}
