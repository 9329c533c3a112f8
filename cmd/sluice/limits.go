package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/sandbox"
)

// The names of the limits' flags, which package workspace mentions to whoever runs into one.
const (
	flagWorkspaceBytes = "workspace-bytes"
	flagWorkspaceFiles = "workspace-files"
	flagFileBytes      = "file-bytes"
)

// addLimitFlags are the limits of workspaces, wherever a worker runs.
func (m *Main) addLimitFlags(c *cobra.Command, l *sandbox.Limits) {
	standard := sandbox.Limits{
		WorkspaceBytes: m.megabytes("MAX_WORKSPACE_SIZE_MB"), WorkspaceFiles: m.positive("MAX_TOTAL_FILES"), FileBytes: m.megabytes("MAX_FILE_SIZE_MB"),
	}.WorkspaceDefaults()
	f := c.Flags()
	f.Int64Var(&l.WorkspaceBytes, flagWorkspaceBytes, standard.WorkspaceBytes, "the files of a workspace may hold `N` bytes together (MAX_WORKSPACE_SIZE_MB)")
	f.Int64Var(&l.WorkspaceFiles, flagWorkspaceFiles, standard.WorkspaceFiles, "a workspace may hold `N` files and folders (MAX_TOTAL_FILES)")
	f.Int64Var(&l.FileBytes, flagFileBytes, standard.FileBytes, "a file may hold `N` bytes (MAX_FILE_SIZE_MB)")
}

func (m *Main) megabytes(name string) int64 { return m.positive(name) * 1_000_000 }

// positive is a number of the environment; 0 where there is none.
func (m *Main) positive(name string) int64 {
	var n int64
	if _, err := fmt.Sscan(m.Getenv(name), &n); err != nil || n < 0 {
		return 0
	}
	return n
}
