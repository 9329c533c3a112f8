package seal

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func parse(t *testing.T, lines ...string) *Keys {
	t.Helper()
	k, err := ParseKeys([]byte(strings.Join(lines, "\n")))
	testkit.Must(t, err)
	return k
}

func newLine(t *testing.T) string {
	t.Helper()
	line, err := NewKey()
	testkit.Must(t, err)
	return line
}

func TestSealAndOpen(t *testing.T) {
	a, b := newLine(t), newLine(t)
	k := parse(t, "# the cell's keys", "", a, "  "+b)
	id := k.Public().ID
	sealed, err := Seal(k.Public(), "c.t.thread.exec", []byte("body"))
	testkit.Must(t, err)
	testkit.Equal(t, "bytes", len(sealed), len("body")+48)
	again, err := Seal(k.Public(), "c.t.thread.exec", []byte("body"))
	testkit.Must(t, err)
	testkit.Equal(t, "sealed twice alike", string(again) == string(sealed), false)
	for _, keys := range []*Keys{k, parse(t, b, a), parse(t, "none", a)} {
		body, err := keys.Open(id, "c.t.thread.exec", sealed)
		testkit.Must(t, err)
		testkit.Equal(t, "body", string(body), "body")
	}
	_, err = k.Open(id, "c.t.other.exec", sealed)
	testkit.WantCode(t, err, schemas.CodeDamaged)
	for i := range sealed {
		flipped := append([]byte(nil), sealed...)
		flipped[i] ^= 1
		_, err = k.Open(id, "c.t.thread.exec", flipped)
		testkit.WantCode(t, err, schemas.CodeDamaged)
	}
	_, err = k.Open(id, "c.t.thread.exec", sealed[:20])
	testkit.WantCode(t, err, schemas.CodeDamaged)
	for _, keys := range []*Keys{nil, new(Keys), parse(t, b), parse(t, "none", b)} {
		testkit.Equal(t, "has the key", keys.Has(id), false)
		_, err = keys.Open(id, "c.t.thread.exec", sealed)
		testkit.WantCode(t, err, schemas.CodeNotFound)
	}
	testkit.Equal(t, "none ends the sealing", parse(t, "none", a).Public() == nil, true)
	_, err = Seal(&schemas.SealKey{ID: "x", Public: make([]byte, 7)}, "", nil)
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	_, err = Seal(&schemas.SealKey{ID: "x", Public: make([]byte, 32)}, "", nil) // of small order
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

func TestParseKeys(t *testing.T) {
	key := newLine(t)
	for what, file := range map[string]string{
		"empty": "", "a comment": "# none\n", "no key": "secret-text", "another suite": strings.Replace(key, "-1:", "-2:", 1), "too short": key[:40],
		"none below a key": key + "\nnone", "too many": strings.Repeat(key+"\n", MaxKeys+1), "a long line": strings.Repeat("x", 1<<17),
	} {
		_, err := ParseKeys([]byte(file))
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		if file != "" && len(file) > 20 && strings.Contains(err.Error(), file[14:20]) {
			t.Errorf("%s: error %q repeats the file", what, err)
		}
	}
}

// FuzzOpen opens what anyone may have stored: it must not panic, and never open.
func FuzzOpen(f *testing.F) {
	line, err := NewKey()
	testkit.Must(f, err)
	k, err := ParseKeys([]byte(line))
	testkit.Must(f, err)
	sealed, err := Seal(k.Public(), "p", []byte("body"))
	testkit.Must(f, err)
	f.Add(sealed, "q")
	f.Fuzz(func(t *testing.T, body []byte, place string) {
		if _, err := k.Open(k.Public().ID, place, body); err == nil && place != "p" {
			t.Errorf("opened %x for %q", body, place)
		}
	})
}
