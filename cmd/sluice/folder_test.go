package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// What `sluice up` makes is readable by its user alone; a stranger without the token is refused, whoever finds it is not.
func TestTheTokenIsWhatAStrangerNeeds(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	err := filepath.WalkDir(c.data, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		top := filepath.Dir(path) == c.data
		if top && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		if filepath.Base(path) == "token" && info.Mode().Perm() != 0o600 {
			t.Errorf("the token has mode %o", info.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.token) < 26 {
		t.Errorf("the token has %d characters", len(s.token))
	}
	for _, token := range []string{"", "wrong", s.token + "x"} {
		if nc, err := nats.Connect(s.url, nats.Token(token)); err == nil {
			nc.Close()
			t.Errorf("token %q was let in", token)
		}
		stranger := newCLI(t)
		stranger.env["SLUICE_NATS_TOKEN"] = token
		got := stranger.run("--nats", s.url, "events")
		got.wantError(t, schemas.CodeUnauthenticated, "token")
		if token != "" && strings.Contains(got.stderr, token) {
			t.Errorf("the message repeats the token: %s", got.stderr)
		}
	}
	friend := newCLI(t)
	friend.env["SLUICE_NATS_TOKEN"], friend.env["SLUICE_NATS_URL"] = s.token, s.url
	if got := friend.exec("--", "echo", "in"); got.stdout != "in\n" {
		t.Errorf("%+v", got)
	}
}

func TestUpTwiceOnOneFolderIsAConflict(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeConflict, c.data, "--data")
	c.run("worker", "--provider", "local", "--nats", "nats://127.0.0.1:1").wantError(t, schemas.CodeConflict, c.data)
	c.good()
}

func TestUpOnATakenPortSaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := newCLI(t)
	c.run("up", "--provider", "local", "--listen", l.Addr().String()).wantError(t, schemas.CodeUnavailable, l.Addr().String(), "--listen")
	c.run("up", "--provider", "local", "--listen", "nowhere").wantError(t, schemas.CodeInvalidArgument, "nowhere")
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:99999").wantError(t, schemas.CodeInvalidArgument, "99999")
	c.good() // the folder was given back
}

// Nobody who may not write gets further than a message, root neither.
func TestADataFolderThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	file := filepath.Join(c.data, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(c.data, "blocked")
	if err := os.MkdirAll(filepath.Join(blocked, "lock"), 0o700); err != nil { // a folder where a file has to be
		t.Fatal(err)
	}
	for _, data := range []string{filepath.Join(file, "below"), file, blocked, filepath.Join(c.data, strings.Repeat("x", 300))} {
		bad := &cli{t: t, data: data, env: map[string]string{}}
		bad.exec("--", "true").wantError(t, schemas.CodeUnavailable, "data folder", "--data")
		bad.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeUnavailable, "data folder", "--data")
		if got := bad.run("doctor"); data != blocked && (got.code != schemas.ExitSluiceFailed || !strings.Contains(got.stdout, "--data")) {
			t.Errorf("doctor: %+v", got)
		}
	}
	if os.Getuid() != 0 {
		if err := os.Chmod(blocked, 0o500); err != nil {
			t.Fatal(err)
		}
		bad := &cli{t: t, data: filepath.Join(blocked, "below"), env: map[string]string{}}
		bad.exec("--", "true").wantError(t, schemas.CodeUnavailable, "data folder", "--data")
	}
}

// A folder's name may be longer than a socket's may be.
func TestADataFolderMayHaveALongName(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.data = filepath.Join(c.data, strings.Repeat("long/", 40)+strings.Repeat("x", 200))
	run, err := (&folder{path: c.data}).runFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(run) }()
	host := c.spawn(execArgs("-n", "--", "bash", "-c", "echo ready; exec sleep 300")...)
	host.line()
	if guest := c.spawn(execArgs("-n", "--", "echo", "guest")...); guest.line() != "guest" {
		t.Error("no guest")
	}
	host.signal(syscall.SIGTERM)
	if code, _ := host.wait(); code != 143 {
		t.Errorf("code %d", code)
	}
	c.up()
	c.good()
}

func TestDoctorSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	got := c.run("doctor")
	for _, word := range []string{"system", "data folder", "disk", "server", "open files", "provider local"} {
		if !strings.Contains(got.stdout, word) {
			t.Errorf("%q is not in %s", word, got.stdout)
		}
	}
	if got.code != 0 || !strings.Contains(got.stdout, "none is running") {
		t.Errorf("%+v", got)
	}
	s := c.up()
	if got := c.run("doctor"); !strings.Contains(got.stdout, s.url) {
		t.Errorf("%+v", got)
	}
}
