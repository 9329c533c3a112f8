package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Only the user can read what `sluice up` creates. A connection needs its token.
func TestServerRequiresToken(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	err := filepath.WalkDir(c.data, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the server has removed it meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		top := filepath.Dir(path) == c.data
		if top && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("mode of %s = %o, want no rights for others", path, info.Mode().Perm())
		}
		if filepath.Base(path) == "token" && info.Mode().Perm() != 0o600 {
			t.Errorf("mode of the token = %o, want 600", info.Mode().Perm())
		}
		return nil
	})
	testkit.Must(t, err)
	if len(s.token) < 26 {
		t.Errorf("the token has %d characters, want at least 26", len(s.token))
	}
	for _, token := range []string{"", "wrong", s.token + "x"} {
		if nc, err := nats.Connect(s.url, nats.Token(token)); err == nil {
			nc.Close()
			t.Errorf("the server accepted token %q", token)
		}
		stranger := newCLI(t)
		stranger.env["SLUICE_NATS_TOKEN"] = token
		got := stranger.run("--nats", s.url, "events")
		got.wantError(t, schemas.CodeUnauthenticated, "token")
		if token != "" && strings.Contains(got.stderr, token) {
			t.Errorf("standard error = %q, want one without the token", got.stderr)
		}
	}
	friend := newCLI(t)
	friend.env["SLUICE_NATS_TOKEN"], friend.env["SLUICE_NATS_URL"] = s.token, s.url
	friend.exec("--", "echo", "in").check(t).prints("in\n")
}

func TestSecondUpOnFolderIsAConflict(t *testing.T) {
	c := newUp(t)
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeConflict, c.data, "--data")
	c.run("worker", "--provider", "local", "--nats", "nats://127.0.0.1:1").wantError(t, schemas.CodeConflict, c.data)
	c.good()
}

func TestUpReportsTakenPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer func() { _ = l.Close() }()
	c := newCLI(t)
	c.run("up", "--provider", "local", "--listen", l.Addr().String()).wantError(t, schemas.CodeUnavailable, l.Addr().String(), "--listen")
	c.run("up", "--provider", "local", "--listen", "nowhere").wantError(t, schemas.CodeInvalidArgument, "nowhere")
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:99999").wantError(t, schemas.CodeInvalidArgument, "99999")
	c.good() // the lock was released
}

// These folders cannot be written, not even by root.
func TestUnwritableDataFolderIsAnError(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	file := filepath.Join(c.data, "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	blocked := filepath.Join(c.data, "blocked")
	if err := os.MkdirAll(filepath.Join(blocked, "lock"), 0o700); err != nil { // a folder in place of the file
		t.Fatal(err)
	}
	for _, data := range []string{filepath.Join(file, "below"), file, blocked, filepath.Join(c.data, strings.Repeat("x", 300))} {
		bad := &cli{t: t, data: data, env: map[string]string{}}
		bad.exec("--", "true").wantError(t, schemas.CodeUnavailable, "data folder", "--data")
		bad.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeUnavailable, "data folder", "--data")
		if got := bad.run("doctor"); data != blocked {
			got.check(t).exits(schemas.ExitSluiceFailed).printsPart("--data")
		}
		if made, err := filepath.Glob("j"); err != nil || len(made) > 0 {
			t.Errorf("doctor made %v in the current folder (error: %v)", made, err)
		}
	}
	if os.Getuid() != 0 {
		testkit.Must(t, os.Chmod(blocked, 0o500))
		bad := &cli{t: t, data: filepath.Join(blocked, "below"), env: map[string]string{}}
		bad.exec("--", "true").wantError(t, schemas.CodeUnavailable, "data folder", "--data")
	}
}

// The path of a data folder may be longer than that of a socket.
func TestDataFolderMayHaveLongPath(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.data = filepath.Join(c.data, strings.Repeat("long/", 40)+strings.Repeat("x", 200))
	folder, err := openFolder(c.data)
	testkit.Must(t, err)
	run, err := folder.runFolder()
	testkit.Must(t, err)
	// What is in it lies in the data folder: /tmp may be mounted noexec.
	testkit.Must(t, os.WriteFile(filepath.Join(run, "file"), nil, 0o600))
	_, err = os.Stat(folder.join("run", "file"))
	testkit.Must(t, err)
	again, err := folder.runFolder()
	testkit.Must(t, err)
	testkit.Equal(t, "the run folder at the next start", again, run)
	defer func() { _ = os.RemoveAll(filepath.Dir(filepath.Dir(run))) }()
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; exec sleep 300")...)
	host.line()
	c.spawn(execArgs("-n", "--", "echo", "guest")...).wantLine("guest")
	host.signal(syscall.SIGTERM)
	host.wantExit(143)
	c.up()
	c.good()
}

// Hardening 7: the link of a long data folder has no name that another user could foresee, and a copy of the folder gets its own.
func TestShortcutsAreOfOneDataFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
	first, err := openFolder(dir)
	testkit.Must(t, err)
	run, err := first.runFolder()
	testkit.Must(t, err)
	private := filepath.Dir(filepath.Dir(run))
	t.Cleanup(func() { testkit.Must(t, os.RemoveAll(private)) })
	testkit.Must(t, os.RemoveAll(private)) // as at the start of the machine
	again, err := first.runFolder()
	testkit.Must(t, err)
	testkit.Equal(t, "the run folder after /tmp was emptied", again, run)
	copied, err := openFolder(filepath.Join(dir, "copy"))
	testkit.Must(t, err)
	testkit.Must(t, copied.write(shortcutFile, []byte(private)))
	own, err := copied.runFolder()
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, os.RemoveAll(filepath.Dir(filepath.Dir(own)))) })
	target, err := os.Readlink(filepath.Dir(own))
	testkit.Must(t, err)
	testkit.Equal(t, "the copy's link leads to", target, copied.path)
}

func TestDoctorListsChecks(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	got := c.run("doctor")
	got.check(t).printsPart("system", "data folder", "disk", "server", "open files", "provider jail", "provider docker", "provider local", "provider auto")
	got.check(t).exits(0).printsPart("none is running")
	s := c.up()
	c.run("doctor").check(t).printsPart(s.url)
}

// Promises 16: the folder remembers the last incarnations of its worker.
func TestFolderRemembersIncarnations(t *testing.T) {
	f, err := openFolder(t.TempDir())
	testkit.Must(t, err)
	var want []string
	for i := range 2 * maxIncarnations {
		id := fmt.Sprint("i", i)
		got, err := f.begin(id)
		testkit.Must(t, err)
		testkit.Equal(t, "incarnations before "+id, slices.Concat(got, []string{}), slices.Concat(want, []string{}))
		want = append([]string{id}, want...)
		want = want[:min(len(want), maxIncarnations-1)]
	}
}
