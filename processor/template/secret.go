package template

import (
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// maxSecretBytes is the longest secret, in bytes.
const maxSecretBytes = 64 << 10

// Secrets returns the values of a template's secrets by the names of their variables. getenv reads the worker's environment.
// Errors, which never contain a value: unavailable, with the variable and the place of its secret.
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

// Secret returns the value of a reference. Errors: unavailable, and invalid_argument for a variable without the prefix.
func Secret(ref schemas.SecretRef, getenv func(string) string) (string, error) {
	if ref.File != "" {
		return secretFile(ref.File)
	}
	// Checked here too, in case the reference was not validated: the rest of the environment must stay hidden.
	if !strings.HasPrefix(ref.Env, schemas.SecretPrefix) {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "variable %q does not begin with %s", ref.Env, schemas.SecretPrefix)
	}
	value := getenv(ref.Env)
	switch {
	case value == "":
		return "", schemas.Errorf(schemas.CodeUnavailable, "variable %s is not set in the worker's environment", ref.Env)
	case len(value) > maxSecretBytes || strings.IndexByte(value, 0) >= 0:
		return "", schemas.Errorf(schemas.CodeUnavailable, "variable %s is not usable as a secret: it is longer than %d bytes or contains a NUL byte", ref.Env, maxSecretBytes)
	}
	return value, nil
}

func secretFile(path string) (string, error) {
	body, err := readRegular(path, maxSecretBytes+1)
	if errors.Is(err, errNotRegular) {
		return "", schemas.Errorf(schemas.CodeUnavailable, "%s is %w", path, err)
	}
	if err != nil {
		return "", schemas.Errorf(schemas.CodeUnavailable, "read %s: %w", path, err)
	}
	line, _, _ := strings.Cut(string(body), "\n")
	line = strings.TrimRight(line, "\r")
	if line == "" || len(line) > maxSecretBytes || strings.IndexByte(line, 0) >= 0 {
		return "", schemas.Errorf(schemas.CodeUnavailable, "the first line of %s is not usable as a secret: it is empty, longer than %d bytes or contains a NUL byte", path, maxSecretBytes)
	}
	return line, nil
}
