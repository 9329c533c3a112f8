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
