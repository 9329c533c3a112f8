package wire

import "testing"

// Each benchmark encodes and decodes one message.

func BenchmarkOutputHead(b *testing.B) {
	frame, m, got := make([]byte, OutputFrame), Output{Handle: 7, Stream: Stderr, Offset: 1 << 40}, Output{}
	b.ReportAllocs()
	for b.Loop() {
		m.Put(frame, 4096)
		if err := got.Decode(frame[headSize:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	for _, m := range samples() {
		b.Run(name(m), func(b *testing.B) {
			var frame []byte
			b.ReportAllocs()
			for b.Loop() {
				frame = Append(frame[:0], m)
				if _, err := Parse(m.kind(), frame[headSize:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
