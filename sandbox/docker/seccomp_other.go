//go:build !linux

package docker

import "github.com/sluice-dev/sluice/schemas"

// seccompProfile fails: this provider needs Linux.
func seccompProfile() (string, error) {
	return "", schemas.Errorf(schemas.CodeUnavailable, "provider docker needs Linux")
}
