package schemas

import (
	"encoding/base64"
	"time"
	"unicode/utf8"
)

// Encoding says how bytes stand in a JSON string.
type Encoding string

// The encodings of output in a result.
const (
	EncodingUTF8   Encoding = ""       // the string is the output
	EncodingBase64 Encoding = "base64" // the output is not valid UTF-8, so that the string is its base64
)

// Encodings lists every encoding.
func Encodings() []Encoding { return []Encoding{EncodingUTF8, EncodingBase64} }

// Result is how a process ended and what it printed. A non-zero exit is a result, not an error.
type Result struct {
	// Process and Thread name the process. Process is empty where the command could not be read, Thread is then the subject's.
	Process string `json:"process"`
	Thread  string `json:"thread"`
	// Success is exit code 0 of a process that ended by itself.
	Success bool `json:"success"`
	// ExitCode is what a shell would show: the process's own, 128+n after signal n, 124 after a timeout, 127 and 126 for a
	// command that was not found or could not be run, 125 where Sluice failed.
	ExitCode int `json:"exit_code"`
	// Reason says what ended it.
	Reason Reason `json:"reason"`
	// Signal is the number of the signal that ended it; 0 if none did.
	Signal int `json:"signal,omitempty"`
	// Stdout and Stderr are the beginning of the output, up to the command's output_limit and what a record can hold.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// StdoutEncoding and StderrEncoding are "base64" where the output is not valid UTF-8.
	StdoutEncoding Encoding `json:"stdout_encoding,omitempty"`
	StderrEncoding Encoding `json:"stderr_encoding,omitempty"`
	// StdoutBytes and StderrBytes are how much was printed, whether kept here or not.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutTruncated and StderrTruncated say that less is here than was printed. The log has all of it.
	StdoutTruncated bool `json:"stdout_truncated,omitempty"`
	StderrTruncated bool `json:"stderr_truncated,omitempty"`
	// Log says where the whole output is; absent when nothing was printed.
	Log *LogRange `json:"log,omitempty"`
	// Command and Args are what ran. Arguments over [MaxShownArgs] bytes in all are cut, which ArgsTruncated says.
	Command       string   `json:"command"`
	Args          []string `json:"args,omitempty"`
	ArgsTruncated bool     `json:"args_truncated,omitempty"`
	// Timestamp is when the process started, or would have, by the worker's clock, in UTC.
	Timestamp time.Time `json:"timestamp"`
	// DurationMS is how long it ran, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
	// UserMS and SystemMS are its CPU time and MaxRSSBytes its largest resident set.
	UserMS      float64 `json:"user_ms,omitempty"`
	SystemMS    float64 `json:"system_ms,omitempty"`
	MaxRSSBytes int64   `json:"max_rss_bytes,omitempty"`
	// Killed counts processes of its tree that were still there when it ended, and were killed then.
	Killed int `json:"killed,omitempty"`
	// Error says why, where the reason is lost or rejected, or where output could not be stored. Beside any other end its code is
	// limit_exceeded: the process ran into a limit of the workspace, or left it with more than it may hold.
	Error *Error `json:"error,omitempty"`
	// Fingerprint is the command's, so that a replay is told from a conflict.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Worker ran it, under the session's Epoch.
	Worker string `json:"worker,omitempty"`
	Epoch  uint64 `json:"epoch,omitempty"`
}

// LogRange is where a process's output stands in the LOG stream. Other processes' chunks lie between.
type LogRange struct {
	// FirstSeq and LastSeq are the stream sequences of its first and last chunk.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	// Chunks is how many there are.
	Chunks int64 `json:"chunks"`
}

// EncodeOutput is p as a JSON string can hold it.
func EncodeOutput(p []byte) (string, Encoding) {
	if utf8.Valid(p) {
		return string(p), EncodingUTF8
	}
	return base64.StdEncoding.EncodeToString(p), EncodingBase64
}

// DecodeOutput undoes [EncodeOutput]. The error is invalid_argument.
func DecodeOutput(s string, e Encoding) ([]byte, error) {
	switch e {
	case EncodingUTF8:
		return []byte(s), nil
	case EncodingBase64:
		p, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, Errorf(CodeInvalidArgument, "output: %w", err)
		}
		return p, nil
	default:
		return nil, Errorf(CodeInvalidArgument, "output has the unknown encoding %q", string(e))
	}
}

// Output is the kept output of a stream as bytes. The error is invalid_argument.
func (r *Result) Output(s Stream) ([]byte, error) {
	if s == Stderr {
		return DecodeOutput(r.Stderr, r.StderrEncoding)
	}
	return DecodeOutput(r.Stdout, r.StdoutEncoding)
}

// SetOutput sets a stream's kept output, total being the bytes printed on it.
func (r *Result) SetOutput(s Stream, kept []byte, total int64) {
	// A cut in the middle of a character must not turn a text into base64.
	if int64(len(kept)) < total {
		kept = trimPartialRune(kept)
	}
	text, enc := EncodeOutput(kept)
	truncated := int64(len(kept)) < total
	if s == Stderr {
		r.Stderr, r.StderrEncoding, r.StderrBytes, r.StderrTruncated = text, enc, total, truncated
		return
	}
	r.Stdout, r.StdoutEncoding, r.StdoutBytes, r.StdoutTruncated = text, enc, total, truncated
}

// trimPartialRune drops an incomplete UTF-8 sequence at the end of p.
func trimPartialRune(p []byte) []byte {
	for i := 1; i <= utf8.UTFMax && i <= len(p); i++ {
		tail := p[len(p)-i:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return p[:len(p)-i]
			}
			break
		}
	}
	return p
}
