package schemas

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decodeStrict reads one JSON object into a struct, and refuses what encoding/json would let pass. Each of these would have
// something run that was not asked for, or that another reader of the same bytes takes for something else:
//
//   - a field that is not known, which includes one that differs in case alone;
//   - a field given twice, of which the last would count;
//   - null, which would count as the default;
//   - invalid UTF-8 and half a surrogate pair, both of which would become U+FFFD;
//   - bytes after the end.
//
// what names the object in errors.
func decodeStrict(what string, body []byte, into any) error {
	if !utf8.Valid(body) {
		return Errorf(CodeInvalidArgument, "the %s is not valid UTF-8: bytes that are not text go to stdin, in base64", what)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	w := walk{what: what, d: d}
	if err := w.value(reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Errorf(CodeInvalidArgument, "the %s has more after its end: send one JSON object a message", what)
	}
	if halfSurrogate(body) {
		return Errorf(CodeInvalidArgument, "the %s holds half of a UTF-16 surrogate pair, which is no character: "+
			"bytes that are not text go to stdin, in base64", what)
	}
	if err := json.Unmarshal(body, into); err != nil {
		if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field != "" {
			return w.misfit(t.Field, t.Value, "want "+wanted(t.Type))
		}
		return w.unreadable(err)
	}
	return nil
}

// walk goes through a JSON value token by token beside the Go type it is meant for.
type walk struct {
	what string
	d    *json.Decoder
}

func (w *walk) unreadable(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	return Errorf(CodeInvalidArgument, "the %s is not the JSON it should be: %s", w.what, brief(err.Error(), maxShownMessage))
}

// value checks the next value. It goes no deeper than t does, so that no input can exhaust the stack.
func (w *walk) value(t reflect.Type, path string) error {
	token, err := w.d.Token()
	if err != nil {
		return w.unreadable(err)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	bytes := t == reflect.TypeFor[[]byte]()
	switch token := token.(type) {
	case nil:
		return w.misfit(path, "null", "leave the field out instead")
	case json.Delim:
		if token == '[' {
			return w.array(t, path)
		}
		return w.object(t, path)
	case string:
		switch {
		case bytes && !validBase64(token):
			return invalid(path, "not base64: use the standard alphabet, with padding")
		case !bytes && t.Kind() != reflect.String:
			return w.misfit(path, "string", "want "+wanted(t))
		}
	case bool:
		if t.Kind() != reflect.Bool {
			return w.misfit(path, "boolean", "want "+wanted(t))
		}
	default:
		if t.Kind() != reflect.Int64 { // whether it fits is for encoding/json to say
			return w.misfit(path, "number", "want "+wanted(t))
		}
	}
	return nil
}

func (w *walk) array(t reflect.Type, path string) error {
	if t.Kind() != reflect.Slice || t == reflect.TypeFor[[]byte]() {
		return w.misfit(path, "array", "want "+wanted(t))
	}
	for i := 0; w.d.More(); i++ {
		if err := w.value(t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return w.end()
}

func (w *walk) object(t reflect.Type, path string) error {
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return w.misfit(path, "object", "want "+wanted(t))
	}
	seen := map[string]bool{}
	for w.d.More() {
		token, err := w.d.Token()
		if err != nil {
			return w.unreadable(err)
		}
		name, ok := token.(string)
		if !ok {
			return w.unreadable(fmt.Errorf("a field's name is %v", token))
		}
		at := join(path, name)
		if seen[name] {
			return invalid(at, "given twice")
		}
		seen[name] = true
		member, ok := memberType(t, name)
		if !ok {
			return invalid(at, "unknown field: check its spelling, and that the worker's version has it")
		}
		if err := w.value(member, at); err != nil {
			return err
		}
	}
	return w.end()
}

// end reads a closing bracket.
func (w *walk) end() error {
	if _, err := w.d.Token(); err != nil {
		return w.unreadable(err)
	}
	return nil
}

// misfit is a JSON value of the wrong kind.
func (w *walk) misfit(path, kind, advice string) error {
	if path == "" {
		return Errorf(CodeInvalidArgument, "the %s is a JSON %s: send one JSON object", w.what, kind)
	}
	return invalid(path, "a JSON %s cannot be used here: %s", kind, advice)
}

// wanted is what JSON calls the values of a Go type.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[[]byte]():
		return "a string of base64"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int64:
		return "a whole number"
	case t.Kind() == reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// memberType is the type of an object's member: a struct knows only its fields, by their exact names.
func memberType(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	for f := range t.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && f.IsExported() {
			return f.Type, true
		}
	}
	return nil, false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// validBase64 says whether encoding/json will read s as bytes.
func validBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil
}

// halfSurrogate looks for an escape such as \ud800 that is not one of a pair. body must be valid JSON, where a backslash
// stands in strings alone.
func halfSurrogate(body []byte) bool {
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 {
			return false
		}
		r, escape := escapedRune(body[i:])
		body = body[i+2:]
		if !escape || !utf16.IsSurrogate(r) {
			continue
		}
		body = body[4:]
		low, escape := escapedRune(body)
		if !escape || utf16.DecodeRune(r, low) == utf8.RuneError {
			return true
		}
		body = body[6:]
	}
}

// escapedRune is the number in a \uXXXX that p begins with.
func escapedRune(p []byte) (rune, bool) {
	var two [2]byte
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, false
	}
	if _, err := hex.Decode(two[:], p[2:6]); err != nil {
		return 0, false
	}
	return rune(two[0])<<8 | rune(two[1]), true
}
