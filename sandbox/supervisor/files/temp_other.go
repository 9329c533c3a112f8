//go:build !linux

package files

import (
	"os"
	"syscall"
)

func nameless(*os.Root) (*os.File, error) { return nil, syscall.ENOTSUP }

func link(*os.File, *os.Root, string) error { return syscall.ENOTSUP }
