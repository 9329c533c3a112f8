package schemas_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/schemas"
)

func TestOutput(t *testing.T) {
	tests := []struct {
		name      string
		kept      string
		total     int64
		text      string
		encoding  schemas.Encoding
		back      string
		truncated bool
	}{
		{name: "nothing"},
		{name: "text", kept: "grüße\n", total: 8, text: "grüße\n", back: "grüße\n"},
		{name: "NUL is text", kept: "a\x00b", total: 3, text: "a\x00b", back: "a\x00b"},
		{name: "no text", kept: "\xff\xfeA", total: 3, text: "//5B", encoding: "base64", back: "\xff\xfeA"},
		{name: "text, cut", kept: "abc", total: 9, text: "abc", back: "abc", truncated: true},
		{name: "cut within a character", kept: "ab\xc3", total: 9, text: "ab", back: "ab", truncated: true},
		{name: "cut after three bytes of four", kept: "ab\xf0\x9f\x98", total: 9, text: "ab", back: "ab", truncated: true},
		{name: "half a character and no cut", kept: "ab\xc3", total: 3, text: "YWLD", encoding: "base64", back: "ab\xc3"},
		{name: "cut to nothing", kept: "\xf0\x9f", total: 4, truncated: true},
		{name: "none kept", total: 4, truncated: true},
		{name: "no text, cut", kept: "\xffab", total: 9, text: "/2Fi", encoding: "base64", back: "\xffab", truncated: true},
		{name: "continuation bytes alone, cut", kept: "\x80\x80\x80\x80\x80", total: 9, text: "gICAgIA=", encoding: "base64", back: "\x80\x80\x80\x80\x80", truncated: true},
	}
	for _, tt := range tests {
		for _, stream := range schemas.Streams() {
			t.Run(tt.name+" "+string(stream), func(t *testing.T) {
				var r schemas.Result
				r.SetOutput(stream, []byte(tt.kept), tt.total)
				text, enc, total, truncated := r.Stdout, r.StdoutEncoding, r.StdoutBytes, r.StdoutTruncated
				other := r.Stderr
				if stream == schemas.Stderr {
					text, enc, total, truncated = r.Stderr, r.StderrEncoding, r.StderrBytes, r.StderrTruncated
					other = r.Stdout
				}
				if text != tt.text || enc != tt.encoding || total != tt.total || truncated != tt.truncated || other != "" {
					t.Errorf("got %q, %q, %d, %v; the other stream %q", text, enc, total, truncated, other)
				}
				back, err := r.Output(stream)
				if err != nil || string(back) != tt.back {
					t.Errorf("decoded %q, %v", back, err)
				}
			})
		}
	}
}

func TestDecodeOutputRefuses(t *testing.T) {
	for _, tt := range []struct{ s, e string }{{"?", "base64"}, {"YQ", "base64"}, {"a", "gzip"}} {
		if _, err := schemas.DecodeOutput(tt.s, schemas.Encoding(tt.e)); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%q in %q: %v", tt.s, tt.e, err)
		}
	}
}

func TestShownArgs(t *testing.T) {
	long := strings.Repeat("x", schemas.MaxShownArgs)
	tests := []struct {
		name      string
		args      []string
		shown     []string
		truncated bool
	}{
		{"none", nil, nil, false},
		{"few", []string{"a", "", "b"}, []string{"a", "", "b"}, false},
		{"one that just fits", []string{long[1:]}, []string{long[1:]}, false},
		{"one that does not", []string{long}, []string{long[1:]}, true},
		{"the second is cut", []string{long[10:], "0123456789abc"}, []string{long[10:], "01234567"}, true},
		{"nothing is left for the second", []string{long[1:], "b"}, []string{long[1:]}, true},
		{"cut within a character", []string{long[2:] + "é"}, []string{long[2:]}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.args)
			shown, truncated := schemas.ShownArgs(tt.args)
			if !slices.Equal(shown, tt.shown) || truncated != tt.truncated {
				t.Errorf("%d args, %v", len(shown), truncated)
			}
			if !slices.Equal(before, tt.args) {
				t.Error("the arguments themselves were changed")
			}
		})
	}
	// Empty arguments take room in a record too.
	shown, truncated := schemas.ShownArgs(make([]string, 200_000))
	if !truncated || len(shown) != schemas.MaxShownArgs {
		t.Errorf("200,000 empty arguments: %d shown, truncated %v", len(shown), truncated)
	}
}

func FuzzOutput(f *testing.F) {
	for _, s := range []string{"", "text", "ab\xc3", "\xff\xfe", "\xf0\x9f\x98\x80", "\x80\x80", "a\x00"} {
		f.Add([]byte(s), uint16(0))
		f.Add([]byte(s), uint16(9))
	}
	f.Fuzz(func(t *testing.T, kept []byte, more uint16) {
		total := int64(len(kept)) + int64(more)
		var r schemas.Result
		r.SetOutput(schemas.Stdout, kept, total)
		if !utf8.ValidString(r.Stdout) {
			t.Fatalf("%q cannot stand in JSON", r.Stdout)
		}
		back, err := r.Output(schemas.Stdout)
		if err != nil {
			t.Fatal(err)
		}
		lost := len(kept) - len(back)
		if !bytes.HasPrefix(kept, back) || lost >= utf8.UTFMax || (more == 0 && lost != 0) {
			t.Fatalf("%q became %q", kept, back)
		}
		if r.StdoutTruncated != (int64(len(back)) < total) || r.StdoutBytes != total {
			t.Fatalf("%d of %d bytes, truncated %v", len(back), total, r.StdoutTruncated)
		}
		if more > 0 && utf8.Valid(kept) && r.StdoutEncoding != schemas.EncodingUTF8 {
			t.Fatalf("the text %q became %s", kept, r.StdoutEncoding)
		}
	})
}
