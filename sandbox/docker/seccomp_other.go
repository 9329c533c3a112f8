//go:build !linux

package docker

import "github.com/sluice-dev/sluice/schemas"

func seccompProfile() (string, error) {
	return "", schemas.Errorf(schemas.CodeUnavailable, "provider docker needs Linux")
}
