package main

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fifo is a pipe with a name, by which a test lets a process go on. The name does not hold what a shell would take apart.
func (c *cli) fifo(name string) string {
	c.t.Helper()
	path := filepath.Join(c.data, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// release writes a line to a fifo, once somebody reads it.
func (c *cli) release(name, line string) {
	c.t.Helper()
	f, err := os.OpenFile(filepath.Join(c.data, name), os.O_WRONLY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		c.t.Error(err)
	}
	if err := f.Close(); err != nil {
		c.t.Error(err)
	}
}
