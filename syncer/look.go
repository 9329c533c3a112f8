package syncer

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// looker stats paths, keeping the last folder open for the next path, which is most often in the same one.
type looker struct {
	root *os.Root
	dir  *os.File
	path string
}

func (k *looker) close() error {
	if k.dir == nil {
		return nil
	}
	err := k.dir.Close()
	k.dir = nil
	return err
}

func (k *looker) at(path string) (st stat, err error) {
	dir := parent(path)
	if k.dir == nil || k.path != dir {
		if err := k.close(); err != nil {
			return stat{}, err
		}
		name := dir
		if name == "" {
			name = "."
		}
		if k.dir, err = k.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
			return stat{}, err
		}
		k.path = dir
	}
	name := path
	if dir != "" {
		name = path[len(dir)+1:]
	}
	raw, err := k.dir.SyscallConn()
	if err != nil {
		return stat{}, err
	}
	var s unix.Stat_t
	if failed := raw.Control(func(fd uintptr) { err = unix.Fstatat(int(fd), name, &s, unix.AT_SYMLINK_NOFOLLOW) }); failed != nil {
		err = failed
	}
	if err != nil {
		return stat{}, err
	}
	st = stat{Size: s.Size, Inode: s.Ino, Mode: uint16(s.Mode & 0o777)}
	st.Mtime, st.Ctime = statTimes(&s)
	return st, nil
}

func (x *session) lookAt(path string) (st stat, err error) {
	k := &looker{root: x.root}
	defer func() { err = joined(errors.Join(err, k.close())) }()
	return k.at(path)
}

// refresh makes the scan say what the folder is after a pull has changed it.
func (x *session) refresh(l *local, c *changes) (err error) {
	gone := make(map[string]bool, len(c.remove))
	for _, n := range c.remove {
		gone[n.Path] = true
	}
	modes := make(map[string]uint16, len(c.chmod))
	for _, n := range c.chmod {
		modes[n.Path] = n.Mode
	}
	k := &looker{root: x.root}
	defer func() { err = joined(errors.Join(err, k.close())) }()
	nodes := make([]*Node, 0, len(l.nodes)+len(c.write))
	stats := make([]stat, 0, cap(nodes))
	x.report.Files = 0
	add := func(n *Node, st stat) {
		nodes, stats = append(nodes, n), append(stats, st)
		if n.Kind == File {
			x.report.Files++
		}
	}
	look := func(n *Node) error {
		st, err := k.at(n.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody has removed it already
		}
		if err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
		if n.Kind == File && st.Size != n.Size {
			changed := *n
			changed.Hashed = false
			n = &changed
		}
		add(n, st)
		return nil
	}
	at := 0
	for i, n := range l.nodes {
		for at < len(c.write) && comparePaths(c.write[at].Path, n.Path) < 0 {
			if err := look(c.write[at]); err != nil {
				return err
			}
			at++
		}
		replaced := at < len(c.write) && c.write[at].Path == n.Path
		mode, moded := modes[n.Path]
		switch {
		case replaced || gone[n.Path]:
		case moded:
			changed := *n
			changed.Mode = mode
			if err := look(&changed); err != nil {
				return err
			}
		default:
			add(n, l.stats[i])
		}
	}
	for ; at < len(c.write); at++ {
		if err := look(c.write[at]); err != nil {
			return err
		}
	}
	l.nodes, l.stats = nodes, stats
	return nil
}
