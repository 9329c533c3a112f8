//go:build unix

package diskspace

import "golang.org/x/sys/unix"

// DefaultReserve is the reserve where none is set: 1 GiB, or a 20th of the file system where that is less.
const (
	DefaultReserve = 1 << 30
	defaultShare   = 20
)

// Space is the room of a file system, in bytes.
type Space struct {
	// Size is the size of the file system, Free what an ordinary user can still write.
	Size, Free int64
}

// Of returns the Space of a folder's file system. Errors: the system's.
func Of(dir string) (Space, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return Space{}, err
		}
	}
	block := int64(st.Bsize)
	return Space{Size: int64(st.Blocks) * block, Free: int64(st.Bavail) * block}, nil
}

// Reserve returns how much is kept free: what is set, or the default for 0.
func (s Space) Reserve(set int64) int64 {
	if set > 0 {
		return set
	}
	return min(DefaultReserve, s.Size/defaultShare)
}
