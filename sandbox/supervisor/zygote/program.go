package zygote

// Kind is the kind of an argument's value.
type Kind byte

// The kinds.
const (
	Const    Kind = iota // the number itself
	Pointer              // the address of Data[value]
	Register             // the result that an earlier call saved in this register
	FD                   // the descriptor with this index among those sent with the program or the continuation
	kinds
)

// Arg is an argument of a call.
type Arg struct {
	Kind  Kind
	Value uint64
}

// Registers is how many results a program can save.
const Registers = 8

// NoSave as Call.Save drops the result.
const NoSave = 0xff

// AwaitCalls as a Call's Number is no system call: the child receives a Continuation on the seqpacket socket that is the first argument
// and runs it. When the other end is closed, the child exits.
const AwaitCalls = 1<<32 - 1

// Call is one system call.
type Call struct {
	Number uint32
	Args   [6]Arg
	// Save is the register for the result; NoSave for none.
	Save byte
	// Optional allows the call to fail. Any other failure is reported and ends the child.
	Optional bool
}

// Patch writes an argument's resolved value into Data, as eight bytes: for structures that contain pointers or descriptors.
type Patch struct {
	At    uint32
	Value Arg
}

// Program is a child's list of system calls.
type Program struct {
	// Flags are those of clone(2), without the signal.
	Flags   uint64
	Calls   []Call
	Patches []Patch
	// Data is the memory that pointers point into.
	Data []byte
}

// MaxProgram is the most bytes a program may take: a datagram must fit the socket's buffer, 208 KiB by default.
const MaxProgram = 160 << 10

// Failure is the report of a call that failed: its index in Calls, where a continuation counts on from the program, and the errno.
type Failure struct{ Call, Errno uint32 }

// ReportSize is a report's size in bytes.
const ReportSize = 8

// Decode reads a report; false when b is none.
func (f *Failure) Decode(b []byte) bool {
	if len(b) != ReportSize {
		return false
	}
	d := decoder{b: b}
	*f = Failure{Call: d.u32(), Errno: d.u32()}
	return true
}

// Append adds the encoded program to b.
func (p *Program) Append(b []byte) []byte {
	b = append64(b, p.Flags)
	b = append32(b, uint32(len(p.Calls)))
	b = append32(b, uint32(len(p.Patches)))
	for i := range p.Calls {
		c := &p.Calls[i]
		n := len(c.Args)
		for n > 0 && c.Args[n-1] == (Arg{}) {
			n--
		}
		b = append32(b, c.Number)
		b = append(b, c.Save, flag(c.Optional), byte(n))
		for _, a := range c.Args[:n] {
			b = appendArg(b, a)
		}
	}
	for _, patch := range p.Patches {
		b = append32(b, patch.At)
		b = appendArg(b, patch.Value)
	}
	return append(b, p.Data...)
}

// pageSize is the maximum size of a continuation, and callSize that of one call in it, in bytes.
const (
	pageSize = 32 << 10
	callSize = 8 * (1 + 6 + 1)
)

// Continuation encodes a program for a child in AwaitCalls whose page is at this address. The child cannot decode, so the bytes are
// laid out as in its memory. It ignores Flags; the descriptors are those sent with it, and a patch must not be one. It returns false
// for an invalid program and for one that does not fit.
func (p *Program) Continuation(page uint64) ([]byte, bool) {
	if !p.valid() {
		return nil, false
	}
	data := page + 8 + callSize*uint64(len(p.Calls))
	for _, patch := range p.Patches {
		v := patch.Value.Value
		switch patch.Value.Kind {
		case Const:
		case Pointer:
			v += data
		default:
			return nil, false
		}
		append64(p.Data[:patch.At], v)
	}
	b := append64(nil, uint64(len(p.Calls)))
	for i := range p.Calls {
		c := &p.Calls[i]
		b = append64(b, uint64(c.Number))
		var kinds [len(c.Args)]byte
		for j, a := range c.Args {
			switch a.Kind {
			case Pointer:
				a.Value += data
			case Register, FD:
				kinds[j] = byte(a.Kind)
			}
			b = append64(b, a.Value)
		}
		b = append(append(b, kinds[:]...), c.Save, flag(c.Optional))
	}
	b = append(b, p.Data...)
	return b, len(b) <= pageSize
}

// minCallSize is the smallest size of an encoded call, in bytes. Decode checks counts with it before it allocates.
const minCallSize = 7

// Decode reads a program; Data is part of b. It returns false when b is not a valid program.
func (p *Program) Decode(b []byte) bool {
	d := decoder{b: b}
	*p = Program{Flags: d.u64()}
	calls, patches := d.u32(), d.u32()
	if d.bad || uint64(calls)+uint64(patches) > uint64(len(b)/minCallSize) {
		return false
	}
	p.Calls = make([]Call, calls)
	for i := range p.Calls {
		c := &p.Calls[i]
		c.Number, c.Save, c.Optional = d.u32(), d.u8(), d.u8() != 0
		n := int(d.u8())
		if n > len(c.Args) || c.Save != NoSave && c.Save >= Registers {
			return false
		}
		for j := range c.Args[:n] {
			c.Args[j] = d.arg()
		}
	}
	p.Patches = make([]Patch, patches)
	for i := range p.Patches {
		p.Patches[i] = Patch{At: d.u32(), Value: d.arg()}
	}
	p.Data = d.b
	return !d.bad && p.valid()
}

// valid reports whether every reference is in range.
func (p *Program) valid() bool {
	for i := range p.Calls {
		for _, a := range p.Calls[i].Args {
			if !p.inRange(a) {
				return false
			}
		}
	}
	for _, patch := range p.Patches {
		if uint64(patch.At)+8 > uint64(len(p.Data)) || !p.inRange(patch.Value) || patch.Value.Kind == Register {
			return false
		}
	}
	return true
}

func (p *Program) inRange(a Arg) bool {
	switch a.Kind {
	case Pointer:
		return a.Value < uint64(len(p.Data))
	case Register:
		return a.Value < Registers
	default:
		return a.Kind < kinds
	}
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func append32(b []byte, v uint32) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

func append64(b []byte, v uint64) []byte { return append32(append32(b, uint32(v)), uint32(v>>32)) }

func appendArg(b []byte, a Arg) []byte { return append64(append(b, byte(a.Kind)), a.Value) }

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return make([]byte, n)
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() byte { return d.take(1)[0] }

func (d *decoder) u32() uint32 {
	v := d.take(4)
	return uint32(v[0]) | uint32(v[1])<<8 | uint32(v[2])<<16 | uint32(v[3])<<24
}

func (d *decoder) u64() uint64 { return uint64(d.u32()) | uint64(d.u32())<<32 }

func (d *decoder) arg() Arg { return Arg{Kind: Kind(d.u8()), Value: d.u64()} }
