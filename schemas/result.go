package schemas

import (
	"encoding/base64"
	"time"
	"unicode/utf8"
)

// Encoding is how a JSON string represents bytes.
type Encoding string

// The encodings of output in a result.
const (
	EncodingUTF8   Encoding = ""       // the string is the output
	EncodingBase64 Encoding = "base64" // the string is the base64 of output that is not valid UTF-8
)

// Encodings lists every encoding.
func Encodings() []Encoding { return []Encoding{EncodingUTF8, EncodingBase64} }

// Result is the end of a process and its output. A non-zero exit code is a result, not an error.
type Result struct {
	// Process and Thread identify the process. When the command could not be decoded, Process is empty and Thread is the subject's.
	Process string `json:"process"`
	Thread  string `json:"thread"`
	// Success says that the process ended by itself with exit code 0, and that all its output was stored.
	Success bool `json:"success"`
	// ExitCode is the exit code as a shell shows it: the process's own; 128+n after signal n; 124 after a timeout; 127 when the
	// command was not found; 126 when it could not run; 125 when Sluice failed.
	ExitCode int `json:"exit_code"`
	// Reason is why the process ended.
	Reason Reason `json:"reason"`
	// Signal is the number of the signal that ended it; 0 for none.
	Signal int `json:"signal,omitempty"`
	// Stdout and Stderr are the start of the output, up to the command's output_limit. A record has at most [MaxRecordOutput] bytes of
	// each; a client reads the rest from the log.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// StdoutEncoding and StderrEncoding are "base64" for output that is not valid UTF-8.
	StdoutEncoding Encoding `json:"stdout_encoding,omitempty"`
	StderrEncoding Encoding `json:"stderr_encoding,omitempty"`
	// StdoutBytes and StderrBytes are the number of bytes that the process printed.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutTruncated and StderrTruncated say that the output here is cut. The log has the rest, but for Gaps.
	StdoutTruncated bool `json:"stdout_truncated,omitempty"`
	StderrTruncated bool `json:"stderr_truncated,omitempty"`
	// Log is where the log has the whole output; absent when nothing was printed.
	Log *LogRange `json:"log,omitempty"`
	// Gaps is output that is missing from the log. A record has what could not be stored, a client's result also what the client
	// looked for and did not find.
	Gaps []LogGap `json:"gaps,omitempty"`
	// Command and Args are those of the command. Arguments beyond [MaxShownArgs] bytes in total are cut; ArgsTruncated says so.
	Command       string   `json:"command"`
	Args          []string `json:"args,omitempty"`
	ArgsTruncated bool     `json:"args_truncated,omitempty"`
	// Timestamp is when the process started, or would have started, by the worker's clock, in UTC.
	Timestamp time.Time `json:"timestamp"`
	// DurationMS is how long the process ran, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
	// UserMS and SystemMS are its CPU time, in milliseconds. MaxRSSBytes is its largest resident set.
	UserMS      float64 `json:"user_ms,omitempty"`
	SystemMS    float64 `json:"system_ms,omitempty"`
	MaxRSSBytes int64   `json:"max_rss_bytes,omitempty"`
	// Killed is the number of descendants that still ran when the process ended, and were then killed.
	Killed int `json:"killed,omitempty"`
	// Error is why the process was lost or rejected, or why output could not be stored. With any other reason, its code is
	// limit_exceeded: the process reached a limit of the workspace, or left more in it than allowed.
	Error *Error `json:"error,omitempty"`
	// AutoCleanup is that of the command: lists leave the process out.
	AutoCleanup bool `json:"auto_cleanup,omitempty"`
	// Fingerprint is the command's fingerprint. It separates a replay from a conflict.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Worker is the worker that ran it, Epoch the session's epoch.
	Worker string `json:"worker,omitempty"`
	Epoch  uint64 `json:"epoch,omitempty"`
}

// RunsAgain reports whether the same command, sent again, runs: the process was rejected before it ran, for a cause that may pass.
func (r *Result) RunsAgain() bool {
	return r.Reason == ReasonRejected && r.Error != nil && r.Error.Code.Retryable()
}

// LogRange is the range of the stream LOG that holds a process's output. The range may also hold output of other processes.
type LogRange struct {
	// FirstSeq and LastSeq are the stream sequences of its first and last chunk.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	// Chunks is the number of the process's chunks.
	Chunks int64 `json:"chunks"`
	// StdoutFrom and StderrFrom are the offsets of the first byte of each stream that the log had when the process ended. It had
	// dropped what was before: the process printed more than its budget.
	StdoutFrom int64 `json:"stdout_from,omitempty"`
	StderrFrom int64 `json:"stderr_from,omitempty"`
}

// EncodeOutput returns p as a JSON string can hold it.
func EncodeOutput(p []byte) (string, Encoding) {
	if utf8.Valid(p) {
		return string(p), EncodingUTF8
	}
	return base64.StdEncoding.EncodeToString(p), EncodingBase64
}

// DecodeOutput is the inverse of [EncodeOutput]. The error is invalid_argument.
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
		return nil, Errorf(CodeInvalidArgument, "output: unknown encoding %q", string(e))
	}
}

// Output returns a stream's output in the result, as bytes. The error is invalid_argument.
func (r *Result) Output(s Stream) ([]byte, error) {
	if s == Stderr {
		return DecodeOutput(r.Stderr, r.StderrEncoding)
	}
	return DecodeOutput(r.Stdout, r.StdoutEncoding)
}

// SetOutput sets a stream's output in the result. total is the number of bytes printed on the stream.
func (r *Result) SetOutput(s Stream, kept []byte, total int64) {
	if int64(len(kept)) < total {
		kept = trimPartialRune(kept) // else a cut within a character makes base64 of a text
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
