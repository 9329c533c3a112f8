package jail

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

// program is a zygote's program with a name for each call, for error messages.
type program struct {
	zygote.Program
	names []string
}

// The types of a call's arguments, besides int, uintptr, string and []byte.
type (
	register   uint64 // a saved result
	descriptor uint64 // the index of a descriptor that is sent with the program
	pointers   []string
)

// The registers.
const (
	scratch register = iota
	mountFD
	oomScoreFD
	supervisorFD
)

func (p *program) call(name string, number uintptr, args ...any) *zygote.Call {
	c := zygote.Call{Number: uint32(number), Save: zygote.NoSave}
	for i, a := range args {
		c.Args[i] = p.arg(a)
	}
	p.Calls = append(p.Calls, c)
	p.names = append(p.names, name)
	return &p.Calls[len(p.Calls)-1]
}

func save(c *zygote.Call, r register) { c.Save = byte(r) }

func (p *program) arg(a any) zygote.Arg {
	switch v := a.(type) {
	case int:
		return zygote.Arg{Value: uint64(v)}
	case uintptr:
		return zygote.Arg{Value: uint64(v)}
	case register:
		return zygote.Arg{Kind: zygote.Register, Value: uint64(v)}
	case descriptor:
		return zygote.Arg{Kind: zygote.FD, Value: uint64(v)}
	case string:
		return p.data(append([]byte(v), 0))
	case []byte:
		return p.data(v)
	case pointers:
		args := make([]zygote.Arg, len(v))
		for i, s := range v {
			args[i] = p.arg(s)
		}
		list := p.data(make([]byte, 8*(len(v)+1)))
		for i := range args {
			p.patch(list, 8*i, args[i])
		}
		return list
	default:
		panic("jail: unsupported type of a call's argument")
	}
}

// data stores bytes in the process's memory, aligned as structures require.
func (p *program) data(b []byte) zygote.Arg {
	offset := len(p.Data)
	p.Data = append(p.Data, b...)
	for len(p.Data)%8 != 0 {
		p.Data = append(p.Data, 0)
	}
	return zygote.Arg{Kind: zygote.Pointer, Value: uint64(offset)}
}

// patch writes a value into data that only the zygote can resolve.
func (p *program) patch(data zygote.Arg, offset int, value zygote.Arg) {
	p.Patches = append(p.Patches, zygote.Patch{At: uint32(data.Value) + uint32(offset), Value: value})
}

// words encodes numbers for the kernel: both architectures are little-endian.
func words(values ...uint64) []byte {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// atFDCWD is AT_FDCWD as a register holds it.
const atFDCWD = ^uintptr(99)

func (p *program) writeFile(path, content string, flags, mode int) {
	p.write(path, content, flags, mode, false)
}

// tryWriteFile writes to a file, if that is permitted.
func (p *program) tryWriteFile(path, content string) { p.write(path, content, 0, 0, true) }

func (p *program) write(path, content string, flags, mode int, optional bool) {
	opened := p.call("open "+path, unix.SYS_OPENAT, atFDCWD, path, unix.O_WRONLY|unix.O_CLOEXEC|flags, mode)
	save(opened, scratch)
	opened.Optional = optional
	p.call("write "+path, unix.SYS_WRITE, scratch, content, len(content)).Optional = optional
	p.call("close "+path, unix.SYS_CLOSE, scratch).Optional = optional
}

// bind mounts a file or a folder of the host below the new root. Attributes can only be added: what the host's mount forbids stays
// forbidden.
func (p *program) bind(from, to string, attributes uint64, recursive bool) {
	flags, at := uintptr(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC), uintptr(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
		at |= unix.AT_RECURSIVE
	}
	save(p.call("clone the mount of "+from, unix.SYS_OPEN_TREE, atFDCWD, from, flags), mountFD)
	p.setAttributes(from, attributes, at)
	p.call("bind "+from+" at "+to, unix.SYS_MOVE_MOUNT, mountFD, "", atFDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
	p.call("close "+from, unix.SYS_CLOSE, mountFD)
}

// setAttributes adds attributes to the mount in mountFD.
func (p *program) setAttributes(from string, attributes uint64, at uintptr) {
	p.call("set mount attributes of "+from, unix.SYS_MOUNT_SETATTR, mountFD, "", at, words(attributes, 0, unix.MS_PRIVATE, 0), sizeofMountAttr)
}

// sizeofMountAttr is the size of the first version of struct mount_attr: MOUNT_ATTR_SIZE_VER0.
const sizeofMountAttr = 32
