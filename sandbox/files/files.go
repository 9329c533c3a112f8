package files

import (
	"bytes"
	"cmp"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	program "github.com/sluice-dev/sluice/sandbox/supervisor/files"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// defaultTimeout ends an operation without content.
	defaultTimeout = 30 * time.Second
	// maxField is the longest field of a record, in bytes: more than a path of a request can have, and a record fits into a message of NATS.
	maxField = 16 << 10
	// maxText is the longest text of an error that the program may print, in bytes.
	maxText = 4 << 10
)

// Command returns the command that does what a request asks for, in a sandbox whose workspace is at home. Errors: invalid_argument.
func Command(id, home string, r *schemas.FileRequest) (sandbox.Command, error) {
	name, err := within("path", home, r.Path)
	if err != nil {
		return sandbox.Command{}, err
	}
	cmd := sandbox.Command{ID: id, Files: sandbox.FilesRead, Grace: time.Second, Args: []string{string(r.Op), name}, Env: map[string]string{"GOMAXPROCS": "2"}}
	entries := strconv.FormatInt(min(cmp.Or(r.Limit, schemas.MaxFileEntries), schemas.MaxFileEntries)+1, 10)
	var more []string
	switch r.Op {
	case schemas.FileStat, schemas.FileDownload, schemas.FileWatch:
	case schemas.FileList:
		more = []string{r.After, entries}
	case schemas.FileSearch:
		more = []string{r.Name, r.Text, entries}
	case schemas.FileRead:
		more = []string{strconv.FormatInt(r.Offset, 10), strconv.FormatInt(cmp.Or(r.Limit, -1), 10)}
	case schemas.FileRemove:
		more = []string{yes(r.Recursive)}
	case schemas.FileMove:
		to, err := within("to", home, r.To)
		if err != nil {
			return sandbox.Command{}, err
		}
		more = []string{to}
	case schemas.FileMkdir, schemas.FileWrite, schemas.FileAppend:
		cmd.Files, more = sandbox.FilesWrite, []string{r.Mode, yes(r.Parents)}
	case schemas.FileUpload:
		cmd.Files = sandbox.FilesWrite
	default:
		return sandbox.Command{}, schemas.Errorf(schemas.CodeInvalidArgument, "op: %q begins no operation", r.Op).With("path", "op")
	}
	cmd.Args = append(cmd.Args, more...)
	cmd.Stdin = r.Op.In()
	if !r.Op.In() && !r.Op.Out() {
		cmd.Timeout = cmp.Or(time.Duration(r.TimeoutMS)*time.Millisecond, defaultTimeout)
	}
	return cmd, nil
}

func yes(on bool) string {
	if on {
		return program.Yes
	}
	return ""
}

// within returns a path relative to the workspace. The program resolves it, and keeps links from leading out.
func within(field, home, name string) (string, error) {
	name = path.Clean(name)
	if path.IsAbs(name) {
		rest, ok := strings.CutPrefix(name+"/", strings.TrimSuffix(home, "/")+"/")
		if !ok {
			return "", schemas.Errorf(schemas.CodeInvalidArgument, "%s: %.60q is not in the workspace, which is %s: use a path in it, or a relative one", field, name, home).With("path", field)
		}
		name = path.Clean(rest)
	}
	return name, nil
}

// Entries returns the entries of the complete records in b, at most this many, and the rest of b. What is no record counts as one that is
// empty: the program's output is not trusted.
func Entries(b []byte, most int) (entries []schemas.FileEntry, rest []byte) {
	for len(entries) < most {
		fields, after, ok := cut(b, program.RecordFields)
		if !ok {
			break
		}
		b = after
		entries = append(entries, entry(fields))
	}
	return entries, b
}

// cut takes n fields off b.
func cut(b []byte, n int) (fields []string, rest []byte, ok bool) {
	for range n {
		field, after, found := bytes.Cut(b, []byte{0})
		if !found {
			return nil, nil, false
		}
		fields, b = append(fields, strings.ToValidUTF8(string(field[:min(len(field), maxField)]), "\uFFFD")), after
	}
	return fields, b, true
}

func entry(f []string) schemas.FileEntry {
	e := schemas.FileEntry{Path: f[0], Type: f[1], Target: f[5], Text: f[7]}
	e.Size, _ = strconv.ParseInt(f[3], 10, 64) // 0 where the program is not to be trusted
	if e.Type != "" {
		mode, _ := strconv.ParseUint(f[2], 8, 12)
		e.Mode = strconv.FormatUint(mode, 8)
		nanos, _ := strconv.ParseInt(f[4], 10, 64)
		modified := time.Unix(0, nanos).UTC()
		e.Modified = &modified
	}
	if line, err := strconv.Atoi(f[6]); err == nil {
		e.Line = line
	} else {
		e.Change = f[6]
	}
	return e
}

// codes are those that the program uses.
func codes() []schemas.Code {
	return []schemas.Code{
		schemas.CodeInvalidArgument, schemas.CodeNotFound, schemas.CodeConflict, schemas.CodePermissionDenied, schemas.CodeTooLarge,
		schemas.CodeLimitExceeded, schemas.CodeInternal,
	}
}

// Outcome returns how the program ended, by its standard error and its exit record. Errors: that of the operation; limit_exceeded for a
// workspace that is over its limits now; deadline_exceeded; lost when the sandbox has ended; unavailable when the program was killed.
func Outcome(stderr []byte, exit sandbox.Exit) (files, size int64, err error) {
	fields, _, ok := cut(stderr, program.OutcomeFields)
	switch {
	case exit.Reason == schemas.ReasonTimedOut:
		return 0, 0, schemas.Errorf(schemas.CodeDeadlineExceeded, "the operation did not end in time, and was ended: raise its timeout")
	case exit.Reason == schemas.ReasonLost:
		return 0, 0, schemas.Errorf(schemas.CodeLost, "the sandbox ended during the operation")
	case exit.Limit != nil:
		return 0, 0, exit.Limit
	case exit.Reason == schemas.ReasonOOM:
		return 0, 0, schemas.Errorf(schemas.CodeLimitExceeded, "the sandbox has not enough memory for the operation")
	case !ok:
		return 0, 0, schemas.Errorf(schemas.CodeUnavailable, "the operation was ended in the sandbox, with exit code %d", exit.Code)
	case fields[0] != program.OutcomeOK:
		code := schemas.Code(fields[0])
		if !slices.Contains(codes(), code) {
			code = schemas.CodeInternal
		}
		return 0, 0, schemas.Errorf(code, "%s", fields[1][:min(len(fields[1]), maxText)])
	}
	files, _ = strconv.ParseInt(fields[1], 10, 64)
	size, _ = strconv.ParseInt(fields[2], 10, 64)
	return max(0, files), max(0, size), nil
}

// StartError gives the error of a start its code.
func StartError(err error) error {
	if e, ok := errors.AsType[*sandbox.StartError](err); ok {
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox has no program for files, because an earlier version of sluice started it: stop the session, and try again (%s)", e.Message)
	}
	return err
}
