//go:build !linux

package hostproc

// KillCgroup does nothing: cgroups need Linux.
func KillCgroup([]string) (killed bool) { return false }
