package jail

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

// program is a zygote's program with the words that tell a person which call failed.
type program struct {
	zygote.Program
	steps []string
}

// The kinds of arguments beside numbers (int, uintptr), strings and bytes.
type (
	register uint64 // a saved result
	passed   uint64 // a descriptor that is sent along, by its index
	pointers []string
)

func (p *program) call(step string, number uintptr, args ...any) *zygote.Call {
	c := zygote.Call{Number: uint32(number), Save: zygote.NoSave}
	for i, a := range args {
		c.Args[i] = p.arg(a)
	}
	p.Calls = append(p.Calls, c)
	p.steps = append(p.steps, step)
	return &p.Calls[len(p.Calls)-1]
}

func (p *program) arg(a any) zygote.Arg {
	switch v := a.(type) {
	case int:
		return zygote.Arg{Value: uint64(v)}
	case uintptr:
		return zygote.Arg{Value: uint64(v)}
	case register:
		return zygote.Arg{Kind: zygote.Register, Value: uint64(v)}
	case passed:
		return zygote.Arg{Kind: zygote.FD, Value: uint64(v)}
	case string:
		return p.data(append([]byte(v), 0))
	case []byte:
		return p.data(v)
	case pointers:
		at := make([]zygote.Arg, len(v))
		for i, s := range v {
			at[i] = p.arg(s)
		}
		list := p.data(make([]byte, 8*(len(v)+1)))
		for i := range at {
			p.patch(list, 8*i, at[i])
		}
		return list
	default:
		panic("jail: argument of a type that no call takes")
	}
}

// data puts bytes where the child finds them. All are aligned, as structures have to be.
func (p *program) data(b []byte) zygote.Arg {
	at := len(p.Data)
	p.Data = append(p.Data, b...)
	for len(p.Data)%8 != 0 {
		p.Data = append(p.Data, 0)
	}
	return zygote.Arg{Kind: zygote.Pointer, Value: uint64(at)}
}

// patch has a value written into data that only the zygote knows.
func (p *program) patch(data zygote.Arg, offset int, value zygote.Arg) {
	p.Patches = append(p.Patches, zygote.Patch{At: uint32(data.Value) + uint32(offset), Value: value})
}

// words are numbers as the kernel reads them: both architectures are little-endian.
func words(values ...uint64) []byte {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// atFDCWD is AT_FDCWD as a register holds it.
const atFDCWD = ^uintptr(99)

// save keeps a call's result.
func save(c *zygote.Call, r register) { c.Save = byte(r) }

// file writes a small file.
func (p *program) file(path, content string, flags, mode int) {
	save(p.call("open "+path, unix.SYS_OPENAT, atFDCWD, path, unix.O_WRONLY|unix.O_CLOEXEC|flags, mode), scratch)
	p.call("write "+path, unix.SYS_WRITE, scratch, content, len(content))
	p.call("close "+path, unix.SYS_CLOSE, scratch)
}

// The registers.
const (
	scratch register = iota
	mounting
	score
	supervisorFD
)

// bind shows a file or a folder of the host at a place below the new root. Nothing but attributes that forbid can be added: what
// the host's mount forbids stays forbidden.
func (p *program) bind(from, to string, attributes uint64, deep bool) {
	flags, at := uintptr(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC), uintptr(unix.AT_EMPTY_PATH)
	if deep {
		flags |= unix.AT_RECURSIVE
		at |= unix.AT_RECURSIVE
	}
	save(p.call("take "+from, unix.SYS_OPEN_TREE, atFDCWD, from, flags), mounting)
	p.attributes(from, attributes, at)
	p.call("bind "+from+" at "+to, unix.SYS_MOVE_MOUNT, mounting, "", atFDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
	p.call("close "+from, unix.SYS_CLOSE, mounting)
}

// attributes adds attributes to the tree that was taken last.
func (p *program) attributes(from string, set uint64, at uintptr) {
	c := p.call("restrict "+from, unix.SYS_MOUNT_SETATTR, mounting, "", at)
	c.Args[3], c.Args[4] = p.data(words(set, 0, unix.MS_PRIVATE, 0)), p.arg(sizeofMountAttr)
}

// sizeofMountAttr is the size of struct mount_attr as the call has known it from the start: MOUNT_ATTR_SIZE_VER0.
const sizeofMountAttr = 32
