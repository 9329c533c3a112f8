//go:build !linux

package docker

import "github.com/sluice-dev/sluice/schemas"

// filter fails: an engine's containers are started from Linux alone.
func filter() (string, error) {
	return "", schemas.Errorf(schemas.CodeUnavailable, "this provider needs Linux")
}
