package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/schemas"
)

// Timeout bounds every wait of a test: 5 minutes. No test depends on its length; a test that reaches it has failed. Under the race detector,
// on a machine that runs all tests at once, one that takes 8 s alone has taken 2 minutes.
const Timeout = 5 * time.Minute

// Programs are what a test binary runs in place of its tests, by its first argument. A program gets the arguments after that
// one and returns its exit code.
type Programs map[string]func(args []string) int

// Main runs a package's tests and fails when they leave a goroutine behind. When os.Args[1] names one of the programs, it runs
// that program in place of the tests. It does not return.
func Main(m *testing.M, programs Programs, ignore ...goleak.Option) {
	if len(os.Args) > 1 {
		if program := programs[os.Args[1]]; program != nil {
			os.Exit(program(os.Args[2:]))
		}
	}
	// nats.go v1.55 leaves this one behind where a connection is closed at the moment of its first asynchronous publication: it registers
	// for the end of the connection after that. A connection that is not closed leaves others, too.
	ignore = append(ignore, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
	goleak.VerifyTestMain(m, ignore...)
}

// FreePort returns a port of [ReservePort] that is reserved until the test ends.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, release, err := ReservePort(tb.Context())
	Must(tb, err)
	tb.Cleanup(release)
	return port
}

// ReservePort returns a TCP port of the loopback interface that no program uses, and that no other one gets before release, while its server
// does not listen yet or starts again: neither from this function, which marks it by the UDP port of the same number, nor from the
// system, since it is below those that Linux and macOS choose by themselves, for listeners on port 0 and for outgoing connections.
func ReservePort(ctx context.Context) (port int, release func(), err error) {
	const first, count, tries = 10_000, 20_000, 100
	var c net.ListenConfig
	var d net.Dialer
	for range tries {
		port := first + rand.IntN(count)
		address := fmt.Sprint("127.0.0.1:", port)
		mark, err := c.ListenPacket(ctx, "udp", address)
		if err != nil {
			continue
		}
		release = func() { _ = mark.Close() } // it was open
		// To listen here would show the same, but a process that is started at that moment has a copy of the listener until its program begins.
		conn, err := d.DialContext(ctx, "tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return port, release, nil
		}
		if err == nil {
			_ = conn.Close()
		}
		release()
	}
	return 0, nil, fmt.Errorf("no free port from %d to %d", first, first+count)
}

// Alive reports whether a process of this machine has not ended. On Linux one that has ended is not alive, though its parent has not asked for
// its status yet.
func Alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprint("/proc/", pid, "/stat"))
	if err != nil {
		return runtime.GOOS != "linux" // there it has ended meanwhile
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name, which no test's program ends like this
	fields := strings.Fields(rest)
	const threads = 20 - 3 // the state is that of the first thread, which may have ended before others; see proc_pid_stat(5)
	return len(fields) > threads && (fields[0] != "Z" && fields[0] != "X" || fields[threads] > "1")
}

// WriteProgram writes a program to path, for anyone to run. No other test of this binary starts a process meanwhile: that process would hold
// the file open for writing until its own exec, and the program could not start ("text file busy").
func WriteProgram(tb testing.TB, path string, content []byte) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	Must(tb, os.WriteFile(path, content, 0o755))
}

// Fail is the exit of a program that should have run until it was killed: it prints err and returns 1.
func Fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Context ends with the test, or after Timeout.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Timeout)
	tb.Cleanup(cancel)
	return ctx
}

// Must ends the test when err is not nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// WantCode ends the test unless err has this code.
func WantCode(tb testing.TB, err error, want schemas.Code) {
	tb.Helper()
	if got := schemas.CodeOf(err); got != want {
		tb.Fatalf("code = %q, want %q (error: %v)", got, want, err)
	}
}

// Equal fails the test when got is not want, and prints the difference. what names the value.
func Equal(tb testing.TB, what string, got, want any, opts ...cmp.Option) {
	tb.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		tb.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

// Contains fails the test unless got contains part. what names the value.
func Contains(tb testing.TB, what, got, part string) {
	tb.Helper()
	if !strings.Contains(got, part) {
		tb.Errorf("%s = %q, want one with %q", what, got, part)
	}
}

// InCI reports whether the tests run in CI: the environment variable CI is "true".
func InCI() bool { return os.Getenv("CI") == "true" }

// Missing is the one rule for a component that a test needs and this machine lacks: under CI the test fails, elsewhere it skips.
// what names the component, install is the command that brings it.
func Missing(tb testing.TB, what, install string) {
	tb.Helper()
	if InCI() {
		tb.Fatalf("%s is missing, and CI must have it: %s", what, install)
	}
	tb.Skipf("%s is missing; to run this test: %s", what, install)
}

// ShortDir makes a folder whose path is short, and removes it after the test. A unix socket's path has at most 107 bytes
// (unix(7)), and t.TempDir() holds the test's name.
func ShortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sl")
	Must(tb, err)
	tb.Cleanup(func() { RemoveAll(tb, dir) })
	return dir
}

// RemoveAll removes a folder, and again when it is not empty: what was killed a moment ago may still have made a file.
func RemoveAll(tb testing.TB, dir string) {
	tb.Helper()
	for deadline := time.Now().Add(Timeout); ; {
		err := os.RemoveAll(dir)
		if !errors.Is(err, syscall.ENOTEMPTY) || time.Now().After(deadline) {
			Must(tb, err)
			return
		}
	}
}

// Build builds a main package of this module without cgo, and returns the path of the program.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	BuildAt(t, path, "github.com/sluice-dev/sluice/"+pkg)
	return path
}

// BuildAt builds a main package, by its import path or its path below the test's folder, without cgo, and writes the program to path. With an
// empty cache that takes minutes: the test's own timeout bounds it.
func BuildAt(t testing.TB, path, pkg string) {
	t.Helper()
	// `go build` links each time, for seconds. `go run` keeps the program in the build cache, and cp gets its path there.
	cmd := exec.CommandContext(t.Context(), "go", "run", "-exec", "cp", pkg, path)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}
