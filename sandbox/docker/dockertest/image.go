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
)

// Bring is the command that brings an engine and busybox to a machine: part of the message to those who have none.
const Bring = ".ci/docker"

// ErrMissing says that this machine lacks what is needed, and gives the command that brings it.
var ErrMissing = errors.New("missing")

// patience is how long the engine may take for a version or an import.
const patience = time.Minute

// Image gives the name of an image with busybox and its usual programs, which it makes where it is missing. Without an
// engine, or a static busybox to make it of, the test fails where CI is "true", and is skipped elsewhere.
func Image(tb testing.TB) string {
	tb.Helper()
	return need(tb, func(ctx context.Context, e *Engine) (string, error) { return e.image(ctx, "busybox", nil) })
}

// Tools gives the name of an image with bash, python3 with its standard library, and jq, besides busybox: this machine's own, with
// the libraries they need. What is missing is treated as by Image.
func Tools(tb testing.TB) string {
	tb.Helper()
	return need(tb, func(ctx context.Context, e *Engine) (string, error) {
		content, err := root(addBusybox, addTools)
		if err != nil {
			return "", fmt.Errorf("%w: not all of busybox, bash, python3 and jq to make an image of: %w: run %s", ErrMissing, err, Bring)
		}
		return e.load(ctx, "sluice-test-tools", content, nil)
	})
}

// Derive makes an image of the same content with changes to its configuration, in the words of a Dockerfile.
func Derive(tb testing.TB, name string, changes ...string) string {
	tb.Helper()
	return need(tb, func(ctx context.Context, e *Engine) (string, error) { return e.image(ctx, name, changes) })
}

// need makes an image for a test.
func need(tb testing.TB, make func(context.Context, *Engine) (string, error)) (ref string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := Open(ctx)
	if err == nil {
		ref, err = make(ctx, e)
		err = errors.Join(err, e.Close())
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrMissing) && os.Getenv("CI") != "true":
		tb.Skip(err)
	default:
		tb.Fatal(err)
	}
	return ref
}

// Image is what the function Image gives. Errors: ErrMissing without a static busybox, and what the engine says.
func (e *Engine) Image(ctx context.Context) (string, error) { return e.image(ctx, "busybox", nil) }

func (e *Engine) image(ctx context.Context, name string, changes []string) (string, error) {
	content, err := busyboxRoot()
	if err != nil {
		return "", fmt.Errorf("%w: no static busybox to make an image of: %w: run %s", ErrMissing, err, Bring)
	}
	return e.load(ctx, "sluice-test-"+name, content, changes)
}

// load imports a root unless the same one is there.
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
	said, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil || bytes.Contains(said, []byte(`"error"`)) {
		return "", fmt.Errorf("import %s: %s, %w", ref, said, err)
	}
	return ref, nil
}

// busyboxRoot is a root file system, as tar: the same bytes for the same busybox.
func busyboxRoot() ([]byte, error) { return root(addBusybox) }

// root is the tar of what these add.
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
	if err := static(path); err != nil {
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

// static refuses a program that needs libraries, which the root does not have.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New(path + " is not static")
		}
	}
	return nil
}
