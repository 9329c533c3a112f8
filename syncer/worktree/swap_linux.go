package worktree

import "golang.org/x/sys/unix"

// renameNew renames to a name that does not exist, else it fails with EEXIST.
func renameNew(from int, old string, to int, name string) error {
	return unix.Renameat2(from, old, to, name, unix.RENAME_NOREPLACE)
}

// exchange swaps two names.
func exchange(from int, old string, to int, name string) error {
	return unix.Renameat2(from, old, to, name, unix.RENAME_EXCHANGE)
}
