package schemas

import (
	"path"
	"regexp"
	"strings"
	"time"
)

// FileOp is an operation on the files of a workspace.
type FileOp string

// The operations. "In" ones take content after the request, and "out" ones give content.
const (
	FileStat     FileOp = "stat"     // what a path is; a symbolic link itself
	FileList     FileOp = "list"     // the entries of a folder, by name
	FileSearch   FileOp = "search"   // entries below a folder whose name fits, or lines with a text
	FileMkdir    FileOp = "mkdir"    // make a folder
	FileRemove   FileOp = "remove"   // remove a file, an empty folder, or with recursive a folder with its content
	FileMove     FileOp = "move"     // rename; replaces a file
	FileWrite    FileOp = "write"    // in: replace a file as a whole
	FileAppend   FileOp = "append"   // in: add to the end of a file
	FileUpload   FileOp = "upload"   // in: a tar stream, extracted into a folder
	FileRead     FileOp = "read"     // out: the content of a file, or a part of it
	FileDownload FileOp = "download" // out: a file, or a folder with its content, as a tar stream
	FileWatch    FileOp = "watch"    // out: a line of JSON, a FileEntry, for each change
	FileCancel   FileOp = "cancel"   // end the operation of this transfer; what it had not finished is undone
)

// FileOps lists every operation.
func FileOps() []FileOp {
	return []FileOp{
		FileStat, FileList, FileSearch, FileMkdir, FileRemove, FileMove, FileWrite, FileAppend, FileUpload, FileRead, FileDownload, FileWatch, FileCancel,
	}
}

// In reports whether content follows the request.
func (op FileOp) In() bool { return op == FileWrite || op == FileAppend || op == FileUpload }

// Out reports whether content is fetched after the request.
func (op FileOp) Out() bool { return op == FileRead || op == FileDownload || op == FileWatch }

// Limits of requests about files.
const (
	// MaxFileNameBytes is the longest name in a path, in bytes: that of Linux.
	MaxFileNameBytes = 255
	// MaxFileEntries is the most entries of one reply, and the default.
	MaxFileEntries = 1000
	// MaxFilePiece is the size of a piece of content, in bytes. Every piece that is fetched has this size, but the last.
	MaxFilePiece = 256 << 10
	// MaxFileWindow is how many pieces of a transfer may be under way.
	MaxFileWindow = 8
)

// FileModePattern is the form of permissions: octal digits.
const FileModePattern = `^[0-7]{0,4}$`

var fileMode = regexp.MustCompile(FileModePattern)

// FileRequest is an operation on the files of a workspace. It is sent on ctl.<thread>.<transfer>.file, where the transfer is an id of the
// caller's choice.
type FileRequest struct {
	// Op is the operation. Required.
	Op FileOp `json:"op"`
	// Session is the id that the session must have, else the request fails with session_expired. Default: any session.
	Session string `json:"session,omitempty"`
	// Path is relative to the workspace, or begins with the workspace's path in the sandbox. Symbolic links in it must not lead out of the
	// workspace. Default: the workspace itself.
	Path string `json:"path,omitempty"`
	// To is the new path, for move.
	To string `json:"to,omitempty"`
	// Mode is the permissions in octal of what write, append and mkdir make. Default: 644, 755 for a folder, and those of the file that write
	// replaces.
	Mode string `json:"mode,omitempty"`
	// Parents makes missing folders of the path, for write, append and mkdir; mkdir then accepts a folder that exists.
	Parents bool `json:"parents,omitempty"`
	// Recursive removes a folder with its content.
	Recursive bool `json:"recursive,omitempty"`
	// Offset is where read begins, in bytes.
	Offset int64 `json:"offset,omitempty"`
	// Limit is the most bytes to read, default all; or the most entries of list and search, default and at most 1000.
	Limit int64 `json:"limit,omitempty"`
	// After is the name after which list begins: the last one of the reply before.
	After string `json:"after,omitempty"`
	// Name is a pattern of names for search, with * ? [ ].
	Name string `json:"name,omitempty"`
	// Text is what a line must contain, for search. Binary files are not searched for it.
	Text string `json:"text,omitempty"`
	// TimeoutMS ends an operation without content, in milliseconds. Default 30 s.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Again says that the request was sent before, and had no answer: a worker that does not know its transfer refuses it, so that
	// nothing happens twice.
	Again bool `json:"again,omitempty"`
	Origin
}

// DecodeFileRequest decodes and validates a request about files, as strictly as [DecodeCommand] and with the same errors.
func DecodeFileRequest(body []byte) (*FileRequest, error) {
	return decodeRequest("file request", body, (*FileRequest).Validate)
}

// Validate checks every field. The error is invalid_argument with the detail "path".
func (r *FileRequest) Validate() error {
	if r.Op == "" {
		return invalid("op", "missing: one of %v", FileOps())
	}
	if r.Op == FileMove && r.To == "" {
		return invalid("to", "missing: name the new path")
	}
	if r.Offset < 0 || r.Limit < 0 {
		return invalid("limit", "offset and limit must not be negative")
	}
	if !fileMode.MatchString(r.Mode) {
		return invalid("mode", "%.40q is no octal number such as 644", r.Mode)
	}
	return first(
		oneOf("op", r.Op, FileOps()), checkOptionalID("session", r.Session), checkFilePath("path", r.Path), checkFilePath("to", r.To),
		checkLabel("after", r.After, MaxFileNameBytes), checkLabel("name", r.Name, MaxFileNameBytes), checkPath("text", r.Text),
		checkMillis("timeout_ms", r.TimeoutMS), r.Origin.validate(),
	)
}

// checkFilePath refuses what no workspace can contain.
func checkFilePath(field, s string) error {
	if err := checkPath(field, s); err != nil || s == "" {
		return err
	}
	for name := range strings.SplitSeq(s, "/") {
		if len(name) > MaxFileNameBytes {
			return invalid(field, "a name has %d bytes, the limit is %d", len(name), MaxFileNameBytes)
		}
	}
	if clean := path.Clean(s); clean == ".." || strings.HasPrefix(clean, "../") {
		return invalid(field, "%.60q leads out of the workspace", s)
	}
	return nil
}

// FileEntry is what a path is, a match of a search, or a change.
type FileEntry struct {
	// Path is relative to the workspace. Where a name is not UTF-8, U+FFFD stands in it, and the entry can only be reached through its folder.
	Path string `json:"path"`
	// Type is file, folder, symlink, fifo, socket or device; empty for what was removed.
	Type string `json:"type,omitempty"`
	// Mode is the permissions in octal.
	Mode string `json:"mode,omitempty"`
	// Size is in bytes.
	Size int64 `json:"size,omitempty"`
	// Modified is when the content was changed last.
	Modified *time.Time `json:"modified,omitempty"`
	// Target is where a symbolic link leads.
	Target string `json:"target,omitempty"`
	// Line is the number of a line that has the text of a search, and Text the first 256 bytes of the line.
	Line int    `json:"line,omitempty"`
	Text string `json:"text,omitempty"`
	// Change is ready, created, changed or removed. A watch begins with ready: what changes from then on is reported.
	Change string `json:"change,omitempty"`
}

// FileReply is the reply to a request about files, and to the last piece of content.
type FileReply struct {
	// Error is why the operation failed.
	Error *Error `json:"error,omitempty"`
	// Entries are what list and search found, and one entry for stat, mkdir, move, write and append: what is there now.
	Entries []FileEntry `json:"entries,omitempty"`
	// Truncated says that there are more entries.
	Truncated bool `json:"truncated,omitempty"`
	// Files and Bytes are what the operation has written, or removed.
	Files int64 `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
}

// FileMessage is a message about files as the thread's owner receives it.
type FileMessage struct {
	// Tenant, Thread and Transfer are those of the subject.
	Tenant, Thread, Transfer string
	// Request begins an operation; nil for a message of one that has begun.
	Request *FileRequest
	// Offset is the number of bytes of content before this piece, or before the piece to fetch.
	Offset int64
	// Data is a piece of content, and End says that it is the last.
	Data []byte
	End  bool
}

// FileAnswer is the answer to a FileMessage: a reply, or a piece of content.
type FileAnswer struct {
	// Reply is nil for a piece.
	Reply *FileReply
	// Data is the piece, and End says that none follows.
	Data []byte
	End  bool
}

// FileTransfer is what an event says of files that were put into a workspace, or taken from it.
type FileTransfer struct {
	// Op is the operation.
	Op FileOp `json:"op"`
	// Path is that of the request.
	Path string `json:"path"`
	// Transfer is the id that the caller gave the operation.
	Transfer string `json:"transfer"`
	// Files and Bytes are how many files, and how many bytes of content.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// DurationMS is how long it took, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
}
