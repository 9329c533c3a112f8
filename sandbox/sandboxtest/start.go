package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a start accepts and refuses.
var startTests = []test{
	{"NotFound", func(t *testing.T, f *fixture) {
		f.writeFile(t, "file", nil, 0o644)
		for _, path := range []string{"no-such-program", "./no-such-program", "/no/such/program", "file/x"} {
			f.wantStartError(t, sandbox.Command{Path: path}, schemas.ExitNotFound, path)
		}
		f.wantStartError(t, sandbox.Command{Path: "true", Env: map[string]string{"PATH": ""}}, schemas.ExitNotFound, "true")
	}},
	{"NotExecutable", func(t *testing.T, f *fixture) {
		f.writeFile(t, "plain", []byte("text"), 0o644)
		f.writeFile(t, "empty-format", []byte("no interpreter is named\n"), 0o755)
		f.writeFile(t, "bad-interpreter", []byte("#!/no/such/interpreter\n"), 0o755)
		f.writeFile(t, "dir/x", nil, 0o644)
		for _, path := range []string{"./plain", "./empty-format", "./bad-interpreter", "./dir", "/"} {
			f.wantStartError(t, sandbox.Command{Path: path}, schemas.ExitNotExecutable, path)
		}
		f.wantStartError(t, sandbox.Command{Path: "plain", Env: map[string]string{"PATH": "."}}, schemas.ExitNotExecutable, "plain")
	}},
	{"ArgumentsTooLong", func(t *testing.T, f *fixture) {
		f.wantStartError(t, sandbox.Command{Path: "true", Args: []string{strings.Repeat("x", 200<<10)}}, schemas.ExitNotExecutable, "true")
		_, err := f.Start(f.ctx, sandbox.Command{ID: f.nextID(), Path: "true", Args: []string{strings.Repeat("x", 9<<20)}})
		WantCode(t, "9 MiB of arguments", err, schemas.CodeTooLarge)
	}},
	{"Lookup", func(t *testing.T, f *fixture) {
		f.writeFile(t, "bin/hello", []byte("#!/bin/sh\necho \"hello $0\"\n"), 0o755)
		f.writeFile(t, "first/hello", []byte("not executable"), 0o644)
		r := f.run(t, sandbox.Command{Path: "hello", Env: map[string]string{"PATH": "first:bin"}})
		testkit.Equal(t, "output of a program in a relative PATH, behind one that is not executable", r.stdout.String(), "hello bin/hello\n")
		r = f.run(t, sandbox.Command{Path: "./hello", Dir: "bin"})
		testkit.Equal(t, "output of a program relative to Dir", r.stdout.String(), "hello ./hello\n")
	}},
	{"Dir", func(t *testing.T, f *fixture) {
		f.writeFile(t, "a/b/c", nil, 0o644)
		home := strings.TrimSpace(f.output(t, "pwd -P"))
		for dir, want := range map[string]string{"": "", ".": "", "a": "/a", "a/b/": "/a/b", "a/../a/b": "/a/b"} {
			r := f.run(t, sandbox.Command{Path: "pwd", Args: []string{"-P"}, Dir: dir})
			testkit.Equal(t, "pwd in the folder "+dir, r.stdout.String(), home+want+"\n")
		}
		f.wantStartError(t, sandbox.Command{Path: "true", Dir: "none"}, schemas.ExitNotExecutable, "none")
		f.wantStartError(t, sandbox.Command{Path: "true", Dir: "a/b/c"}, schemas.ExitNotExecutable, "a/b/c")
	}},
	{"DirEscapes", func(t *testing.T, f *fixture) {
		for name, target := range map[string]string{"up": "..", "root": "/", "far": "a/../../.."} {
			testkit.Must(t, os.Symlink(target, filepath.Join(f.workspace, name)))
		}
		for _, dir := range []string{"..", "../", "a/../..", "/", "/etc", "up", "root", "root/etc", "far", "up/" + filepath.Base(f.workspace)} {
			_, err := f.Start(f.ctx, sandbox.Command{ID: f.nextID(), Path: "true", Dir: dir})
			if _, start := errors.AsType[*sandbox.StartError](err); dir == "far" && start {
				continue // its path leads through a folder that does not exist
			}
			WantCode(t, "dir "+dir, err, schemas.CodeInvalidArgument)
		}
	}},
	{"Refused", func(t *testing.T, f *fixture) {
		for what, cmd := range map[string]sandbox.Command{
			"no id":              {Path: "true"},
			"bad id":             {ID: "a.b", Path: "true"},
			"no path":            {ID: "x"},
			"zero byte in path":  {ID: "x", Path: "tr\x00ue"},
			"zero byte in args":  {ID: "x", Path: "true", Args: []string{"a\x00b"}},
			"zero byte in env":   {ID: "x", Path: "true", Env: map[string]string{"A": "\x00"}},
			"no name in env":     {ID: "x", Path: "true", Env: map[string]string{"": "a"}},
			"'=' in name in env": {ID: "x", Path: "true", Env: map[string]string{"A=B": "a"}},
			"negative timeout":   {ID: "x", Path: "true", Timeout: -1},
		} {
			_, err := f.Start(f.ctx, cmd)
			WantCode(t, what, err, schemas.CodeInvalidArgument)
		}
	}},
	{"SameID", func(t *testing.T, f *fixture) {
		r := f.start(t, sandbox.Command{ID: "same", Path: "cat", Stdin: true})
		_, err := f.Start(f.ctx, sandbox.Command{ID: "same", Path: "true"})
		WantCode(t, "an id in use", err, schemas.CodeConflict)
		r.wantEnd(t)
	}},
	{"ContextCanceled", func(t *testing.T, f *fixture) {
		_, err := f.Start(f.canceled(), sandbox.Command{ID: f.nextID(), Path: "sleep", Args: []string{"300"}})
		wantError(t, "start with a canceled context", err, context.Canceled)
		f.wantNoLeftovers(t)
	}},
	{"ContextBoundsStartAlone", func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		p, err := f.Start(ctx, sandbox.Command{ID: f.nextID(), Path: "cat", Stdin: true})
		cancel()
		testkit.Must(t, err)
		r := &testProcess{Process: p, ctx: f.ctx}
		testkit.Must(t, r.WriteStdin(f.ctx, []byte("still there")))
		r.readUntil(t, "still there")
		r.wantEnd(t)
	}},
}

// wantStartError starts a command that must fail with a StartError of this code, whose message contains text and a reason.
func (f *fixture) wantStartError(t *testing.T, cmd sandbox.Command, want int, text string) {
	t.Helper()
	cmd.ID = f.nextID()
	_, err := f.Start(f.ctx, cmd)
	failure, ok := errors.AsType[*sandbox.StartError](err)
	if !ok || failure.Code != want {
		t.Errorf("start %s: error = %v, want a StartError with code %d", cmd.Path, err, want)
		return
	}
	if !strings.Contains(failure.Message, text) || len(failure.Message) < len(text)+5 {
		t.Errorf("start %s: message = %q, want it to name %q and a reason", cmd.Path, failure.Message, text)
	}
}
