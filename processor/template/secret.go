package template

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// maxSecretBytes bounds a secret.
const maxSecretBytes = 64 << 10

// Secrets are the values of a template's secrets, by the names of the variables they become. getenv reads the worker's
// environment. No error repeats a value. Errors: unavailable, naming the variable and where its secret should be.
func Secrets(t *schemas.Template, getenv func(string) string) (map[string]string, error) {
	if len(t.Secrets) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(t.Secrets))
	for name, ref := range t.Secrets {
		value, err := Secret(ref, getenv)
		if err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "template %s: secret %s: %w", t.Name, name, err)
		}
		out[name] = value
	}
	return out, nil
}

// Secret is what one reference leads to. Errors: unavailable.
func Secret(ref schemas.SecretRef, getenv func(string) string) (string, error) {
	if ref.File != "" {
		return secretFile(ref.File)
	}
	// Checked here too: a reference that was never validated must not be a way to the rest of the environment.
	if !strings.HasPrefix(ref.Env, schemas.SecretPrefix) {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "variable %q does not begin with %s", ref.Env, schemas.SecretPrefix)
	}
	value := getenv(ref.Env)
	switch {
	case value == "":
		return "", schemas.Errorf(schemas.CodeUnavailable, "variable %s is not set where the worker runs", ref.Env)
	case len(value) > maxSecretBytes || strings.IndexByte(value, 0) >= 0:
		return "", schemas.Errorf(schemas.CodeUnavailable, "variable %s holds no secret: it is too long", ref.Env)
	}
	return value, nil
}

func secretFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	if !info.Mode().IsRegular() { // a pipe would keep the worker waiting
		return "", schemas.Errorf(schemas.CodeUnavailable, "%s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, maxSecretBytes+1)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", unreadable(path, err)
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" || len(line) > maxSecretBytes || strings.IndexByte(line, 0) >= 0 {
		return "", schemas.Errorf(schemas.CodeUnavailable, "the first line of %s is no secret: it is empty, longer than %d bytes or no text", path, maxSecretBytes)
	}
	return line, nil
}

func unreadable(path string, err error) error {
	return schemas.Errorf(schemas.CodeUnavailable, "read %s: %w", path, err)
}
