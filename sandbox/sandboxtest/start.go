package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

var startTests = []test{
	{"NotFound", func(t *testing.T, b *box) {
		b.file(t, "file", nil, 0o644)
		for _, path := range []string{"no-such-program", "./no-such-program", "/no/such/program", "file/x"} {
			b.fails(t, sandbox.Command{Path: path}, schemas.ExitNotFound, path)
		}
		b.fails(t, sandbox.Command{Path: "true", Env: map[string]string{"PATH": ""}}, schemas.ExitNotFound, "true")
	}},
	{"NotExecutable", func(t *testing.T, b *box) {
		b.file(t, "plain", []byte("text"), 0o644)
		b.file(t, "empty-format", []byte("no interpreter is named\n"), 0o755)
		b.file(t, "bad-interpreter", []byte("#!/no/such/interpreter\n"), 0o755)
		b.file(t, "dir/x", nil, 0o644)
		for _, path := range []string{"./plain", "./empty-format", "./bad-interpreter", "./dir", "/"} {
			b.fails(t, sandbox.Command{Path: path}, schemas.ExitNotExecutable, path)
		}
		b.fails(t, sandbox.Command{Path: "plain", Env: map[string]string{"PATH": "."}}, schemas.ExitNotExecutable, "plain")
	}},
	{"ArgumentsTooLong", func(t *testing.T, b *box) {
		b.fails(t, sandbox.Command{Path: "true", Args: []string{strings.Repeat("x", 200<<10)}}, schemas.ExitNotExecutable, "true")
		_, err := b.Start(b.ctx, sandbox.Command{ID: b.id(), Path: "true", Args: []string{strings.Repeat("x", 9<<20)}})
		code(t, "9 MiB of arguments", err, schemas.CodeTooLarge)
	}},
	{"Lookup", func(t *testing.T, b *box) {
		b.file(t, "bin/hello", []byte("#!/bin/sh\necho \"hello $0\"\n"), 0o755)
		b.file(t, "first/hello", []byte("not executable"), 0o644)
		r := b.start(t, sandbox.Command{Path: "hello", Env: map[string]string{"PATH": "first:bin"}})
		r.ends(t, schemas.ReasonExited, 0)
		is(t, "found in a relative PATH, past one that may not be run", r.stdout.String(), "hello bin/hello\n")
		r = b.start(t, sandbox.Command{Path: "./hello", Dir: "bin"})
		r.ends(t, schemas.ReasonExited, 0)
		is(t, "found relative to Dir", r.stdout.String(), "hello ./hello\n")
	}},
	{"Dir", func(t *testing.T, b *box) {
		b.file(t, "a/b/c", nil, 0o644)
		home := strings.TrimSpace(b.say(t, "pwd -P"))
		for dir, want := range map[string]string{"": "", ".": "", "a": "/a", "a/b/": "/a/b", "a/../a/b": "/a/b"} {
			r := b.start(t, sandbox.Command{Path: "pwd", Args: []string{"-P"}, Dir: dir})
			r.ends(t, schemas.ReasonExited, 0)
			is(t, "pwd in "+dir, r.stdout.String(), home+want+"\n")
		}
		b.fails(t, sandbox.Command{Path: "true", Dir: "none"}, schemas.ExitNotExecutable, "none")
		b.fails(t, sandbox.Command{Path: "true", Dir: "a/b/c"}, schemas.ExitNotExecutable, "a/b/c")
	}},
	{"DirEscapes", func(t *testing.T, b *box) {
		for name, target := range map[string]string{"up": "..", "root": "/", "far": "a/../../.."} {
			if err := os.Symlink(target, filepath.Join(b.workspace, name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"..", "../", "a/../..", "/", "/etc", "up", "root", "root/etc", "far", "up/" + filepath.Base(b.workspace)} {
			_, err := b.Start(b.ctx, sandbox.Command{ID: b.id(), Path: "true", Dir: dir})
			if _, start := errors.AsType[*sandbox.StartError](err); dir == "far" && start {
				continue // it goes through a folder that is not there
			}
			code(t, "dir "+dir, err, schemas.CodeInvalidArgument)
		}
	}},
	{"Refused", func(t *testing.T, b *box) {
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
			_, err := b.Start(b.ctx, cmd)
			code(t, what, err, schemas.CodeInvalidArgument)
		}
	}},
	{"SameID", func(t *testing.T, b *box) {
		r := b.start(t, sandbox.Command{ID: "same", Path: "cat", Stdin: true})
		_, err := b.Start(b.ctx, sandbox.Command{ID: "same", Path: "true"})
		code(t, "an id in use", err, schemas.CodeConflict)
		if err := r.CloseStdin(); err != nil {
			t.Error(err)
		}
		r.ends(t, schemas.ReasonExited, 0)
	}},
	{"ContextOver", func(t *testing.T, b *box) {
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		if _, err := b.Start(ctx, sandbox.Command{ID: b.id(), Path: "sleep", Args: []string{"300"}}); !errors.Is(err, context.Canceled) {
			t.Errorf("start with a context that is over: %v", err)
		}
		b.alone(t)
	}},
	{"ContextBoundsTheStartAlone", func(t *testing.T, b *box) {
		ctx, cancel := context.WithCancel(b.ctx)
		p, err := b.Start(ctx, sandbox.Command{ID: b.id(), Path: "cat", Stdin: true})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		r := &run{Process: p, ctx: b.ctx}
		if err := r.WriteStdin(b.ctx, []byte("still there")); err != nil {
			t.Fatal(err)
		}
		r.until(t, "still there")
		if err := r.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		r.ends(t, schemas.ReasonExited, 0)
	}},
}

// fails starts a command that must not start, for a reason of its own.
func (b *box) fails(t *testing.T, cmd sandbox.Command, want int, says string) {
	t.Helper()
	cmd.ID = b.id()
	_, err := b.Start(b.ctx, cmd)
	failure, ok := errors.AsType[*sandbox.StartError](err)
	if !ok || failure.Code != want {
		t.Errorf("start %s: got %v, want a StartError with %d", cmd.Path, err, want)
		return
	}
	if !strings.Contains(failure.Message, says) || len(failure.Message) < len(says)+5 {
		t.Errorf("start %s: %q does not say what and why", cmd.Path, failure.Message)
	}
}
