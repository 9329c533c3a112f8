//go:build !linux || !(amd64 || arm64)

package bin

const program = ""
