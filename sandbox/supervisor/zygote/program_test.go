package zygote

import (
	"bytes"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

func example() *Program {
	return &Program{
		Flags: 1 << 29,
		Calls: []Call{
			{Number: 257, Args: [6]Arg{{Value: ^uint64(99)}, {Kind: Pointer, Value: 8}, {}, {Value: 7}}, Save: 2},
			{Number: 3, Args: [6]Arg{{Kind: Register, Value: 2}}, Save: NoSave, Optional: true},
			{Number: 292, Args: [6]Arg{{Kind: FD, Value: 1}}, Save: NoSave},
		},
		Patches: []Patch{{At: 0, Value: Arg{Kind: FD, Value: 1}}},
		Data:    []byte("12345678/path\x00"),
	}
}

func TestProgramRoundTrip(t *testing.T) {
	var got Program
	if !got.Decode(example().Append(nil)) {
		t.Fatal("Decode of the example = false, want true")
	}
	testkit.Equal(t, "program", &got, example())
	for what, damage := range map[string]func(p *Program){
		"pointer out of range":  func(p *Program) { p.Calls[0].Args[1].Value = 100 },
		"register out of range": func(p *Program) { p.Calls[1].Args[0].Value = Registers },
		"save out of range":     func(p *Program) { p.Calls[0].Save = Registers },
		"unknown kind":          func(p *Program) { p.Calls[0].Args[0].Kind = kinds },
		"patch out of range":    func(p *Program) { p.Patches[0].At = 10 },
		"patch with a register": func(p *Program) { p.Patches[0].Value = Arg{Kind: Register} },
	} {
		p := example()
		damage(p)
		if got.Decode(p.Append(nil)) {
			t.Errorf("%s: Decode = true, want false", what)
		}
	}
	whole := example().Append(nil)
	for n := range len(whole) - len(example().Data) {
		if got.Decode(whole[:n]) {
			t.Errorf("Decode of the first %d bytes of %d = true, want false", n, len(whole))
		}
	}
}

// TestContinuation: pointers and patches become addresses; registers and descriptors stay for the child to resolve.
func TestContinuation(t *testing.T) {
	const page = 0x1000
	p := example()
	p.Patches = []Patch{{At: 0, Value: Arg{Kind: Pointer, Value: 8}}}
	data := append64(nil, page+8+3*callSize+8)
	data = append(data, p.Data[8:]...)
	b, ok := p.Continuation(page)
	if !ok {
		t.Fatal("Continuation of the example = false, want true")
	}
	d := decoder{b: b}
	testkit.Equal(t, "number of calls", d.u64(), uint64(3))
	type layout struct {
		Number uint64
		Args   [6]uint64
		Kinds  [6]byte
		Save   byte
		Option byte
	}
	for _, want := range []layout{
		{Number: 257, Args: [6]uint64{^uint64(99), page + 8 + 3*callSize + 8, 0, 7}, Save: 2},
		{Number: 3, Args: [6]uint64{2}, Kinds: [6]byte{byte(Register)}, Save: NoSave, Option: 1},
		{Number: 292, Args: [6]uint64{1}, Kinds: [6]byte{byte(FD)}, Save: NoSave},
	} {
		got := layout{Number: d.u64()}
		for i := range got.Args {
			got.Args[i] = d.u64()
		}
		copy(got.Kinds[:], d.take(len(got.Kinds)))
		got.Save, got.Option = d.u8(), d.u8()
		testkit.Equal(t, "call", got, want)
	}
	testkit.Equal(t, "data", d.b, data)
	for what, damage := range map[string]func(p *Program){
		"patch with a descriptor": func(p *Program) { p.Patches[0].Value.Kind = FD },
		"pointer out of range":    func(p *Program) { p.Calls[0].Args[1].Value = 100 },
		"more than a page":        func(p *Program) { p.Data = make([]byte, pageSize) },
	} {
		p := example()
		damage(p)
		if _, ok := p.Continuation(page); ok {
			t.Errorf("%s: Continuation = true, want false", what)
		}
	}
}

// FuzzProgram: a program that decodes encodes to the same program.
func FuzzProgram(f *testing.F) {
	f.Add(example().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Program
		if !p.Decode(b) {
			return
		}
		encoded := p.Append(nil)
		var again Program
		if !again.Decode(encoded) {
			t.Fatal("Decode of the encoded program = false, want true")
		}
		if got := again.Append(nil); !bytes.Equal(got, encoded) {
			t.Errorf("encoded again = %x, want %x", got, encoded)
		}
	})
}
