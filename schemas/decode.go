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

// decodeStrict decodes one JSON object into a struct. It refuses input that encoding/json accepts but that would run something
// the caller did not ask for, or that another JSON parser reads differently:
//
//   - an unknown field, which includes one that differs only in case;
//   - a field given twice, of which encoding/json uses the last;
//   - null, which encoding/json reads as the default;
//   - invalid UTF-8 and half a surrogate pair, which encoding/json replaces by U+FFFD;
//   - bytes after the end.
//
// what names the object in errors.
func decodeStrict(what string, body []byte, into any) error {
	if !utf8.Valid(body) {
		return Errorf(CodeInvalidArgument, "the %s is not valid UTF-8: send binary data on stdin, in base64", what)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	w := walker{what: what, d: d}
	if err := w.value(reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Errorf(CodeInvalidArgument, "the %s is followed by more data: send one JSON object per message", what)
	}
	if halfSurrogate(body) {
		return Errorf(CodeInvalidArgument, "the %s contains half of a UTF-16 surrogate pair: send binary data on stdin, in base64", what)
	}
	if err := json.Unmarshal(body, into); err != nil {
		if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field != "" {
			return w.wrongType(t.Field, t.Value, t.Type)
		}
		return w.notJSON(err)
	}
	return nil
}

// walker checks JSON tokens against the Go type that they are for.
type walker struct {
	what string
	d    *json.Decoder
}

func (w *walker) notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unexpected end")
	}
	return Errorf(CodeInvalidArgument, "the %s is not valid JSON: %s", w.what, brief(err.Error(), maxErrorMessage))
}

// value checks the next value. Its depth is bounded by t's, so that no input can exhaust the stack.
func (w *walker) value(t reflect.Type, path string) error {
	token, err := w.d.Token()
	if err != nil {
		return w.notJSON(err)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	isBytes := t == reflect.TypeFor[[]byte]()
	switch token := token.(type) {
	case nil:
		if path == "" {
			return w.wrongType(path, "null", t)
		}
		return invalid(path, "null is not allowed: omit the field")
	case json.Delim:
		if token == '[' {
			return w.array(t, path)
		}
		return w.object(t, path)
	case string:
		switch {
		case isBytes && !validBase64(token):
			return invalid(path, "not base64: use the standard alphabet, with padding")
		case !isBytes && t.Kind() != reflect.String:
			return w.wrongType(path, "string", t)
		}
	case bool:
		if t.Kind() != reflect.Bool {
			return w.wrongType(path, "boolean", t)
		}
	case json.Number:
		var err error
		switch t.Kind() {
		case reflect.Int64:
			_, err = token.Int64()
		case reflect.Float64:
			_, err = token.Float64()
		default:
			return w.wrongType(path, "number", t)
		}
		if err != nil {
			return w.wrongType(path, "number "+brief(string(token), maxErrorPath), t)
		}
	}
	return nil
}

func (w *walker) array(t reflect.Type, path string) error {
	if t.Kind() != reflect.Slice || t == reflect.TypeFor[[]byte]() {
		return w.wrongType(path, "array", t)
	}
	for i := 0; w.d.More(); i++ {
		if err := w.value(t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return w.end()
}

func (w *walker) object(t reflect.Type, path string) error {
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return w.wrongType(path, "object", t)
	}
	seen := map[string]bool{}
	for w.d.More() {
		token, err := w.d.Token()
		if err != nil {
			return w.notJSON(err)
		}
		name, ok := token.(string)
		if !ok {
			return w.notJSON(fmt.Errorf("%v is not a field name", token))
		}
		at := join(path, name)
		if seen[name] {
			return invalid(at, "given twice")
		}
		seen[name] = true
		member, ok := memberType(t, name)
		if !ok {
			return invalid(at, "unknown field: check its spelling and the worker's version")
		}
		if err := w.value(member, at); err != nil {
			return err
		}
	}
	return w.end()
}

// end reads the closing bracket.
func (w *walker) end() error {
	if _, err := w.d.Token(); err != nil {
		return w.notJSON(err)
	}
	return nil
}

func (w *walker) wrongType(path, got string, want reflect.Type) error {
	if path == "" {
		return Errorf(CodeInvalidArgument, "the %s is a JSON %s: send one JSON object", w.what, got)
	}
	return invalid(path, "got a JSON %s, want %s", got, jsonType(want))
}

// jsonType returns the JSON name of a Go type's values.
func jsonType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[[]byte]():
		return "a string of base64"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int64:
		return "a whole number of 64 bits"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// memberType returns the type of an object's member. A struct has only its fields, by their exact names.
func memberType(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	for f := range t.Fields() {
		if f.Anonymous {
			if member, ok := memberType(f.Type, name); ok {
				return member, true
			}
			continue
		}
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

// validBase64 reports whether encoding/json decodes s into bytes.
func validBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil
}

// halfSurrogate reports whether body has an escape such as \ud800 that is not part of a pair. body must be valid JSON, which has
// backslashes only in strings.
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

// escapedRune decodes the \uXXXX at the start of p.
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

// DecodeStrict decodes one JSON object into a struct whose fields are strings, true or false, numbers (int64, float64), bytes, and slices, maps
// and structs of them. It refuses what encoding/json accepts and other parsers read differently: unknown and repeated fields, null, text that
// is not UTF-8, and data after the end. what names the object in errors. The error is invalid_argument with the detail "path".
func DecodeStrict(what string, body []byte, into any) error { return decodeStrict(what, body, into) }
