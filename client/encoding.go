package client

import (
	"encoding/base64"

	"github.com/sluice-dev/sluice/schemas"
)

// Encoding is how Stdout and Stderr of a result hold output, which is bytes. In every form [schemas.Result.Output] returns the bytes, but for
// those that EncodingText has replaced.
type Encoding string

// The encodings of a request.
const (
	EncodingAuto   Encoding = ""       // the text, or base64 of output that is not UTF-8
	EncodingText   Encoding = "utf-8"  // the text; what is not UTF-8 is replaced by U+FFFD
	EncodingBase64 Encoding = "base64" // always base64
	EncodingRaw    Encoding = "raw"    // the bytes as they are: the strings may be no UTF-8
)

// check returns nil for one of the encodings. Errors: invalid_argument.
func (e Encoding) check() error {
	switch e {
	case EncodingAuto, EncodingText, EncodingBase64, EncodingRaw:
		return nil
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "unknown encoding %q: use utf-8, base64 or raw", string(e)).With("path", "encoding")
	}
}

// apply sets the form of the output of a result.
func (e Encoding) apply(r *schemas.Result) error {
	if e == EncodingAuto {
		return nil
	}
	for _, s := range schemas.Streams() {
		p, err := r.Output(s)
		if err != nil {
			return err
		}
		text, form := string(p), schemas.EncodingUTF8
		switch e {
		case EncodingText:
			text = string([]rune(text))
		case EncodingBase64:
			text, form = base64.StdEncoding.EncodeToString(p), schemas.EncodingBase64
		}
		if s == schemas.Stderr {
			r.Stderr, r.StderrEncoding = text, form
		} else {
			r.Stdout, r.StdoutEncoding = text, form
		}
	}
	return nil
}
