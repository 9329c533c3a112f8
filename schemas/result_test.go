package schemas_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestResultOutput(t *testing.T) {
	tests := []struct {
		name      string
		kept      string
		total     int64
		text      string
		encoding  schemas.Encoding
		decoded   string
		truncated bool
	}{
		{name: "nothing"},
		{name: "text", kept: "grüße\n", total: 8, text: "grüße\n", decoded: "grüße\n"},
		{name: "NUL is text", kept: "a\x00b", total: 3, text: "a\x00b", decoded: "a\x00b"},
		{name: "binary", kept: "\xff\xfeA", total: 3, text: "//5B", encoding: "base64", decoded: "\xff\xfeA"},
		{name: "text, cut", kept: "abc", total: 9, text: "abc", decoded: "abc", truncated: true},
		{name: "cut within a character", kept: "ab\xc3", total: 9, text: "ab", decoded: "ab", truncated: true},
		{name: "cut after three bytes of four", kept: "ab\xf0\x9f\x98", total: 9, text: "ab", decoded: "ab", truncated: true},
		{name: "half a character, not cut", kept: "ab\xc3", total: 3, text: "YWLD", encoding: "base64", decoded: "ab\xc3"},
		{name: "cut to nothing", kept: "\xf0\x9f", total: 4, truncated: true},
		{name: "none kept", total: 4, truncated: true},
		{name: "binary, cut", kept: "\xffab", total: 9, text: "/2Fi", encoding: "base64", decoded: "\xffab", truncated: true},
		{name: "continuation bytes alone, cut", kept: "\x80\x80\x80\x80\x80", total: 9, text: "gICAgIA=", encoding: "base64", decoded: "\x80\x80\x80\x80\x80", truncated: true},
	}
	for _, tt := range tests {
		for _, stream := range schemas.Streams() {
			t.Run(tt.name+" "+string(stream), func(t *testing.T) {
				var r schemas.Result
				r.SetOutput(stream, []byte(tt.kept), tt.total)
				want := schemas.Result{Stdout: tt.text, StdoutEncoding: tt.encoding, StdoutBytes: tt.total, StdoutTruncated: tt.truncated}
				if stream == schemas.Stderr {
					want = schemas.Result{Stderr: tt.text, StderrEncoding: tt.encoding, StderrBytes: tt.total, StderrTruncated: tt.truncated}
				}
				testkit.Equal(t, "result", r, want)
				decoded, err := r.Output(stream)
				testkit.Must(t, err)
				testkit.Equal(t, "decoded output", string(decoded), tt.decoded)
			})
		}
	}
}

func TestDecodeOutputRefusesInvalid(t *testing.T) {
	for _, tt := range []struct{ s, e string }{{"?", "base64"}, {"YQ", "base64"}, {"a", "gzip"}} {
		_, err := schemas.DecodeOutput(tt.s, schemas.Encoding(tt.e))
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
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
		{"one that fits", []string{long[1:]}, []string{long[1:]}, false},
		{"one that does not fit", []string{long}, []string{long[1:]}, true},
		{"the second is cut", []string{long[10:], "0123456789abc"}, []string{long[10:], "01234567"}, true},
		{"no space for the second", []string{long[1:], "b"}, []string{long[1:]}, true},
		{"cut within a character", []string{long[2:] + "é"}, []string{long[2:]}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.args)
			shown, truncated := schemas.ShownArgs(tt.args)
			testkit.Equal(t, "shown arguments", shown, tt.shown)
			testkit.Equal(t, "truncated", truncated, tt.truncated)
			testkit.Equal(t, "arguments afterwards", tt.args, before)
		})
	}
	// Empty arguments take space in a record too.
	shown, truncated := schemas.ShownArgs(make([]string, 200_000))
	testkit.Equal(t, "number of shown empty arguments", len(shown), schemas.MaxShownArgs)
	testkit.Equal(t, "empty arguments truncated", truncated, true)
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
			t.Fatalf("stdout %q is not valid UTF-8", r.Stdout)
		}
		decoded, err := r.Output(schemas.Stdout)
		testkit.Must(t, err)
		if !bytes.HasPrefix(kept, decoded) {
			t.Fatalf("decoded output = %q, want a prefix of %q", decoded, kept)
		}
		if cut := len(kept) - len(decoded); cut >= utf8.UTFMax || (more == 0 && cut != 0) {
			t.Fatalf("%q was cut by %d bytes to %q", kept, cut, decoded)
		}
		testkit.Equal(t, "stdout_truncated", r.StdoutTruncated, int64(len(decoded)) < total)
		testkit.Equal(t, "stdout_bytes", r.StdoutBytes, total)
		if more > 0 && utf8.Valid(kept) && r.StdoutEncoding != schemas.EncodingUTF8 {
			t.Fatalf("text %q has encoding %q", kept, r.StdoutEncoding)
		}
	})
}
