package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// InstallCommand installs an engine and busybox.
const InstallCommand = ".ci/docker"

// ErrMissing is in the error of a component that this machine lacks. The text also has the InstallCommand.
var ErrMissing = errors.New("missing")

// imageTimeout bounds the engine's answers for one image.
const imageTimeout = time.Minute

// Image returns the name of an image with busybox and its usual programs, and makes the image when it is missing. Without an engine
// or a static busybox it calls testkit.Missing.
func Image(tb testing.TB) string {
	tb.Helper()
	return need(tb, func(ctx context.Context, e *Engine) (string, error) { return e.image(ctx, "busybox", nil) })
}

// Tools returns the name of an image with busybox, bash, python3 with its standard library, and jq: this machine's programs, with
// their libraries. Without one of them it calls testkit.Missing.
func Tools(tb testing.TB) string {
	tb.Helper()
	return need(tb, func(ctx context.Context, e *Engine) (string, error) {
		content, err := root(addBusybox, addTools)
		if err != nil {
			return "", fmt.Errorf("%w: busybox, bash, python3 or jq: %w: run %s", ErrMissing, err, InstallCommand)
		}
		return e.load(ctx, "sluice-test-tools", content, nil)
	})
}

// Derive makes an image with the content of Image and another configuration, given as Dockerfile instructions.
func Derive(tb testing.TB, name string, changes ...string) string {
	tb.Helper()
	return need(tb, func(ctx context.Context, e *Engine) (string, error) { return e.image(ctx, name, changes) })
}

func need(tb testing.TB, build func(context.Context, *Engine) (string, error)) (ref string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), imageTimeout)
	defer cancel()
	e, err := Open(ctx)
	if err == nil {
		ref, err = build(ctx, e)
		err = errors.Join(err, e.Close())
	}
	if errors.Is(err, ErrMissing) {
		testkit.Missing(tb, "the Docker test image ("+err.Error()+")", InstallCommand)
	}
	testkit.Must(tb, err)
	return ref
}

// Image returns the same as the function Image. Errors: ErrMissing without a static busybox; the engine's.
func (e *Engine) Image(ctx context.Context) (string, error) { return e.image(ctx, "busybox", nil) }

func (e *Engine) image(ctx context.Context, name string, changes []string) (string, error) {
	content, err := root(addBusybox)
	if err != nil {
		return "", fmt.Errorf("%w: static busybox: %w: run %s", ErrMissing, err, InstallCommand)
	}
	return e.load(ctx, "sluice-test-"+name, content, changes)
}

// load imports a root file system as an image, unless the engine has it. The tag is a hash of the root and the changes.
func (e *Engine) load(ctx context.Context, name string, root []byte, changes []string) (string, error) {
	h := sha256.New()
	h.Write(root)
	h.Write([]byte(strings.Join(changes, "\n")))
	ref := name + ":" + hex.EncodeToString(h.Sum(nil)[:6])
	if _, err := e.client.ImageInspect(ctx, ref); err == nil {
		return ref, nil
	}
	body, err := e.client.ImageImport(ctx, image.ImportSource{Source: bytes.NewReader(root), SourceName: "-"}, ref, image.ImportOptions{Changes: changes})
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err == nil && bytes.Contains(answer, []byte(`"error"`)) {
		err = errors.New(string(answer))
	}
	if err != nil {
		return "", fmt.Errorf("import %s: %w", ref, err)
	}
	return ref, nil
}

// root returns a root file system as a tar. The same programs give the same bytes.
func root(parts ...func(w *tar.Writer) error) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, add := range parts {
		if err := add(w); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func addBusybox(w *tar.Writer) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	if err := checkStatic(path); err != nil {
		return err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return err
	}
	for _, dir := range []string{"bin/", "etc/", "root/"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}))
	}
	err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))}))
	if _, writeErr := w.Write(program); writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	for _, name := range strings.Fields(string(applets)) {
		if name != "busybox" {
			err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}))
		}
	}
	return err
}

// checkStatic refuses a program that needs shared libraries: the root has none.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New(path + " is not a static program")
		}
	}
	return nil
}
