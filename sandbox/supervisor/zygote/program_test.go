package zygote

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestProgram(t *testing.T) {
	var got Program
	if !got.Decode(example().Append(nil)) {
		t.Fatal("not decoded")
	}
	if diff := cmp.Diff(example(), &got); diff != "" {
		t.Error(diff)
	}
	for what, damage := range map[string]func(p *Program){
		"pointer":  func(p *Program) { p.Calls[0].Args[1].Value = 100 },
		"register": func(p *Program) { p.Calls[1].Args[0].Value = Registers },
		"save":     func(p *Program) { p.Calls[0].Save = Registers },
		"kind":     func(p *Program) { p.Calls[0].Args[0].Kind = kinds },
		"patch":    func(p *Program) { p.Patches[0].At = 10 },
		"patched":  func(p *Program) { p.Patches[0].Value = Arg{Kind: Register} },
	} {
		p := example()
		damage(p)
		if got.Decode(p.Append(nil)) {
			t.Errorf("%s: decoded", what)
		}
	}
	whole := example().Append(nil)
	for n := range len(whole) - len(example().Data) {
		if got.Decode(whole[:n]) {
			t.Errorf("decoded %d bytes of %d", n, len(whole))
		}
	}
}

// TestNext: pointers and patches are addresses, and what only the child knows is left to it.
func TestNext(t *testing.T) {
	const page = 0x1000
	p := example()
	p.Patches = []Patch{{At: 0, Value: Arg{Kind: Pointer, Value: 8}}}
	data := append64(nil, page+8+3*callSize+8)
	data = append(data, p.Data[8:]...)
	b, ok := p.Next(page)
	if !ok {
		t.Fatal("not encoded")
	}
	d := decoder{b: b}
	if n := d.u64(); n != 3 {
		t.Errorf("%d calls", n)
	}
	type laid struct {
		number uint64
		args   [6]uint64
		kinds  [6]byte
		save   byte
		option byte
	}
	want := []laid{
		{number: 257, args: [6]uint64{^uint64(99), page + 8 + 3*callSize + 8, 0, 7}, save: 2},
		{number: 3, args: [6]uint64{2}, kinds: [6]byte{byte(Register)}, save: NoSave, option: 1},
		{number: 292, args: [6]uint64{1}, kinds: [6]byte{byte(FD)}, save: NoSave},
	}
	for _, w := range want {
		got := laid{number: d.u64()}
		for i := range got.args {
			got.args[i] = d.u64()
		}
		copy(got.kinds[:], d.take(len(got.kinds)))
		got.save, got.option = d.u8(), d.u8()
		if got != w {
			t.Errorf("%+v, not %+v", got, w)
		}
	}
	if !bytes.Equal(d.b, data) {
		t.Errorf("data %q, not %q", d.b, data)
	}
	for what, damage := range map[string]func(p *Program){
		"patch":   func(p *Program) { p.Patches[0].Value.Kind = FD },
		"pointer": func(p *Program) { p.Calls[0].Args[1].Value = 100 },
		"size":    func(p *Program) { p.Data = make([]byte, pageSize) },
	} {
		p := example()
		damage(p)
		if _, ok := p.Next(page); ok {
			t.Errorf("%s: encoded", what)
		}
	}
}

func FuzzProgram(f *testing.F) {
	f.Add(example().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Program
		if !p.Decode(b) {
			return
		}
		var again Program
		if !again.Decode(p.Append(nil)) {
			t.Fatal("what was decoded does not decode again")
		}
		if !bytes.Equal(again.Append(nil), p.Append(nil)) {
			t.Error("another program")
		}
	})
}
