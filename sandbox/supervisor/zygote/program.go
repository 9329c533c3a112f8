package zygote

// Kind says what an argument's value is.
type Kind byte

// The kinds.
const (
	Const    Kind = iota // the number itself
	Pointer              // the address of Data[value]
	Register             // what an earlier call that saved to this register returned
	FD                   // the descriptor with this index among those sent with the program, or with what follows it
	kinds
)

// Arg is an argument of a call.
type Arg struct {
	Kind  Kind
	Value uint64
}

// Registers is how many results a program can save.
const Registers = 8

// NoSave in Call.Save drops the result.
const NoSave = 0xff

// More as a Call's Number is no system call: the child waits for what Next encodes on the socket that is the first argument, a
// seqpacket one, and goes on with that. When the other end is closed it exits.
const More = 1<<32 - 1

// Call is one system call.
type Call struct {
	Number uint32
	Args   [6]Arg
	// Save is the register that gets the result; NoSave for none.
	Save byte
	// Optional calls may fail; any other failure ends the child, and is reported.
	Optional bool
}

// Patch writes an argument's resolved value into Data, as eight bytes: for structures that hold pointers or descriptors.
type Patch struct {
	At    uint32
	Value Arg
}

// Program is what a child does.
type Program struct {
	// Flags are those of clone(2), without the signal.
	Flags   uint64
	Calls   []Call
	Patches []Patch
	// Data is what pointers point into.
	Data []byte
}

// MaxProgram is the most bytes a program may take: a datagram must fit the socket's buffer, 208 KiB by default.
const MaxProgram = 160 << 10

// Failure is the report of a call that failed: its index in Calls, those of what came before counted too, and the errno. It takes ReportSize bytes.
type Failure struct{ Call, Errno uint32 }

// ReportSize is a Failure's size.
const ReportSize = 8

// Decode reads a report; false when it is none.
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

// pageSize is the most bytes that Next may give, and callSize what a call takes of them.
const (
	pageSize = 32 << 10
	callSize = 8 * (1 + 6 + 1)
)

// Next encodes a program for a child that waits at More, and whose page is at this address, as the child itself is to find it: the
// child could not decode. Its Flags count for nothing; descriptors are those sent along. Patches cannot be descriptors. False
// when it does not fit.
func (p *Program) Next(page uint64) ([]byte, bool) {
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

// smallest is how few bytes a call can take, against lists that are longer than what follows.
const smallest = 7

// Decode reads a program; Data is part of b. False when b does not hold one.
func (p *Program) Decode(b []byte) bool {
	d := decoder{b: b}
	*p = Program{Flags: d.u64()}
	calls, patches := d.u32(), d.u32()
	if d.bad || uint64(calls)+uint64(patches) > uint64(len(b)/smallest) {
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

// valid says whether every reference stays inside.
func (p *Program) valid() bool {
	for i := range p.Calls {
		for _, a := range p.Calls[i].Args {
			if !p.refers(a) {
				return false
			}
		}
	}
	for _, patch := range p.Patches {
		if uint64(patch.At)+8 > uint64(len(p.Data)) || !p.refers(patch.Value) || patch.Value.Kind == Register {
			return false
		}
	}
	return true
}

func (p *Program) refers(a Arg) bool {
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
