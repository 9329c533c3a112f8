package sandboxtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/files"
	"github.com/sluice-dev/sluice/schemas"
)

// What the program for files does with what processes of the sandbox prepare, or change meanwhile.
var badFileTests = []test{
	{"LinkSwappedInDuringAnUpload", func(t *testing.T, f *fixture) {
		// Also one that stays in the workspace: it leads out of the folder that the stream is extracted into.
		for _, target := range []string{strings.TrimSpace(f.output(t, "mktemp -d")), "../other"} {
			f.output(t, "rm -rf in other; mkdir other")
			first := tarOf(t, "d/one")
			r := f.startFile(t, f, schemas.FileRequest{Op: schemas.FileUpload, Path: "in"})
			testkit.Must(t, r.WriteStdin(f.ctx, first[:2*512])) // without the end of the stream
			f.output(t, "until [ -e in/d/one ]; do sleep 0.02; done; mv in/d in/moved; ln -s "+target+" in/d")
			_, err := f.endFile(t, r, true, tarOf(t, "d/two"))
			wantError(t, "upload through a link to "+target, err, schemas.ErrInvalidArgument)
			testkit.Equal(t, "what is where", f.output(t, "cd in; find . | sort; ls -A "+target), ".\n./d\n./moved\n./moved/one\n")
		}
	}},
	{"LinksSwappedAgainAndAgain", func(t *testing.T, f *fixture) {
		other := strings.TrimSpace(f.output(t, "mkdir -p in/d; mktemp -d"))
		swapper := f.shReady(t, "cd in; echo ready; while :; do mv d e; ln -s "+other+" d; rm d; mv e d; done 2>/dev/null")
		var names []string
		for i := range 300 {
			names = append(names, "d/"+strconv.Itoa(i))
		}
		for range 5 {
			for _, req := range []schemas.FileRequest{{Op: schemas.FileUpload, Path: "in"}, {Op: schemas.FileWrite, Path: "in/d/file"}, {Op: schemas.FileAppend, Path: "in/d/more"}} {
				_, err := f.file(t, f, req, tarOf(t, names...))
				if e, ok := errors.AsType[*schemas.Error](err); err != nil && (!ok || e.Code == schemas.CodeInternal) {
					t.Errorf("%s: error %v, want one with a code", req.Op, err)
				}
			}
		}
		swapper.kill(t)
		testkit.Equal(t, "names outside and temporary files", f.output(t, "ls -A "+other+"; find . -name '*.tmp'"), "")
	}},
	{"NamedPipes", func(t *testing.T, f *fixture) {
		f.output(t, "mkfifo pipe; mkdir folder; mkfifo folder/pipe; echo text >folder/file")
		for _, req := range []schemas.FileRequest{
			{Op: schemas.FileRead, Path: "pipe"}, {Op: schemas.FileWrite, Path: "pipe"}, {Op: schemas.FileAppend, Path: "pipe"},
			{Op: schemas.FileDownload, Path: "pipe"}, {Op: schemas.FileList, Path: "pipe"},
			{Op: schemas.FileRead, Path: "pipe/x"}, {Op: schemas.FileWrite, Path: "pipe/x"},
		} {
			_, err := f.file(t, f, req, tarOf(t, "x"))
			wantError(t, string(req.Op), err, schemas.ErrInvalidArgument)
		}
		_, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileUpload}, tarOf(t, "pipe"))
		wantError(t, "upload of a file onto a pipe", err, schemas.ErrInvalidArgument)
		for _, req := range []schemas.FileRequest{ // a folder is to be made there
			{Op: schemas.FileMkdir, Path: "pipe"}, {Op: schemas.FileMkdir, Path: "pipe/x", Parents: true}, {Op: schemas.FileUpload, Path: "pipe"},
			{Op: schemas.FileMove, Path: "folder", To: "pipe"},
		} {
			_, err = f.file(t, f, req, tarOf(t, "x"))
			wantError(t, string(req.Op), err, schemas.ErrConflict)
		}
		found, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileSearch, Text: "text"}, nil)
		testkit.Must(t, err)
		entries, _ := files.Entries([]byte(found), 2)
		testkit.Equal(t, "files with the text", len(entries), 1)
		out, err := f.file(t, f, schemas.FileRequest{Op: schemas.FileDownload, Path: "folder"}, nil)
		testkit.Must(t, err)
		if strings.Contains(out, "pipe") {
			t.Error("the pipe is in the tar stream")
		}
		// A process that reads the pipe changes nothing.
		reader := f.shReady(t, "exec 3<>pipe; echo ready; exec cat <&3")
		_, err = f.file(t, f, schemas.FileRequest{Op: schemas.FileAppend, Path: "pipe"}, []byte("x"))
		wantError(t, "append to a pipe that is read", err, schemas.ErrInvalidArgument)
		reader.kill(t)
		f.output(t, "rm -r pipe folder")
		f.wantWorkspace(t)
	}},
	{"KilledUploadLeavesWholeFiles", func(t *testing.T, f *fixture) {
		r := f.startFile(t, f, schemas.FileRequest{Op: schemas.FileUpload, Path: "in"})
		testkit.Must(t, r.WriteStdin(f.ctx, tarOf(t, "d/one")[:2*512]))
		testkit.Must(t, r.WriteStdin(f.ctx, append(tarHeader(t, "d/two", 1<<30), make([]byte, 1<<20)...)))
		f.output(t, "until [ -e in/d/one ]; do sleep 0.02; done")
		r.kill(t)
		r.readAll(t)
		_, err := r.Wait(f.ctx)
		testkit.Must(t, err)
		testkit.Equal(t, "what is left", f.output(t, "find in | sort"), "in\nin/d\nin/d/one\n")
	}},
	{"ModesAreExact", func(t *testing.T, f *fixture) {
		for _, req := range []schemas.FileRequest{
			{Op: schemas.FileMkdir, Path: "m", Mode: "777"}, {Op: schemas.FileAppend, Path: "a", Mode: "666"}, {Op: schemas.FileWrite, Path: "w", Mode: "7666"},
			{Op: schemas.FileWrite, Path: "p/f", Parents: true},
		} {
			_, err := f.file(t, f, req, nil)
			testkit.Must(t, err)
		}
		testkit.Equal(t, "modes", f.output(t, "stat -c '%n %a' a m p p/f w"), "a 666\nm 777\np 755\np/f 644\nw 666\n")
	}},
}

// tarOf is a tar stream of files of one block each.
func tarOf(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		testkit.Must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 512}))
		_, err := w.Write(make([]byte, 512))
		testkit.Must(t, err)
	}
	testkit.Must(t, w.Close())
	return b.Bytes()
}

// tarHeader is the header of a file of this many bytes.
func tarHeader(t *testing.T, name string, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	testkit.Must(t, tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}))
	return b.Bytes()
}
