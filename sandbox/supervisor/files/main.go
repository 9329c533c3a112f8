package files

import (
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The operations. Three limits come before, in decimal, where -1 is none: the bytes of a file, and how many bytes and files the
// workspace has room for. The operation's own arguments follow, the path first.
const (
	OpStat     = "stat"
	OpList     = "list"     // name after which to begin, most entries
	OpRead     = "read"     // offset, bytes or -1
	OpWrite    = "write"    // mode or empty, [Yes] to make parents; content on standard input
	OpAppend   = "append"   // mode or empty, Yes to make parents; content on standard input
	OpMkdir    = "mkdir"    // mode or empty, Yes to make parents
	OpRemove   = "remove"   // Yes for a folder with its content
	OpMove     = "move"     // the new path
	OpSearch   = "search"   // pattern of names, text, most matches
	OpWatch    = "watch"    // runs until it is killed
	OpUpload   = "upload"   // tar on standard input
	OpDownload = "download" // tar on standard output
)

// Yes is the argument that switches something on.
const Yes = "yes"

// Numbers of fields.
const (
	// RecordFields: path, type, mode in octal, size, nanoseconds since 1970 of the last change, target of a link, change or number of a line,
	// text of the line.
	RecordFields = 8
	// OutcomeFields: "ok", files, bytes; or the code of an error, its text, and nothing.
	OutcomeFields = 3
)

// OutcomeOK is the first field of the outcome of an operation that has succeeded.
const OutcomeOK = "ok"

// Codes of errors. They are those of package schemas.
const (
	codeInvalid  = "invalid_argument"
	codeNotFound = "not_found"
	codeConflict = "conflict"
	codeDenied   = "permission_denied"
	codeTooLarge = "too_large"
	codeLimit    = "limit_exceeded"
	codeInternal = "internal"
)

const (
	exitFailed = 1
	// firstArg is the number of the least arguments: the limits, the operation and its path.
	firstArg = 5
	// idleLimit ends a program whose input stops: its worker has died, and does not end it.
	idleLimit = 2 * time.Minute
	// copyBuffer is the size of the buffer for content, in bytes.
	copyBuffer = 256 << 10
)

// failure is an error with a code.
type failure struct{ code, text string }

// Error is the text.
func (f *failure) Error() string { return f.text }

func fail(code, path, text string) error { return &failure{code, path + ": " + text} }

// program is one run.
type program struct {
	root *os.Root // the workspace
	args []string // after the limits
	in   io.Reader
	out  io.Writer

	fileLimit, roomBytes, roomFiles int64
	made                            int64 // of roomFiles
	files, bytes                    int64 // done

	mu   sync.Mutex
	temp func() // removes the temporary file; nil for none
}

// Main runs one operation in the working directory, and returns the exit code: 0, or 1 after an error.
func Main(args []string) int {
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGPIPE) // the call's error says it
	syscall.Umask(0)                                // modes are those of the request
	p := &program{in: os.Stdin, out: os.Stdout}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	idle := time.AfterFunc(idleLimit, func() { stop <- syscall.SIGTERM })
	go func() {
		<-stop
		p.dropTemp()
		os.Exit(exitFailed)
	}()
	p.in = &awake{os.Stdin, idle}
	err := p.run(args, idle)
	p.mu.Lock() // a signal must not interrupt the outcome
	outcome := OutcomeOK + "\x00" + strconv.FormatInt(p.files, 10) + "\x00" + strconv.FormatInt(p.bytes, 10) + "\x00"
	code := 0
	if err != nil {
		f := describe(err)
		outcome, code = f.code+"\x00"+strings.ReplaceAll(f.text, "\x00", "")+"\x00\x00", exitFailed
	}
	os.Stderr.WriteString(outcome)
	return code
}

// awake starts the idle time again with each read.
type awake struct {
	io.Reader
	idle *time.Timer
}

func (a *awake) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	a.idle.Reset(idleLimit)
	return n, err
}

func (p *program) run(args []string, idle *time.Timer) error {
	if len(args) < firstArg {
		return &failure{codeInternal, "too few arguments: only sluice starts this program"}
	}
	for i, limit := range []*int64{&p.fileLimit, &p.roomBytes, &p.roomFiles} {
		n, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil {
			return err
		}
		*limit = n
	}
	root, err := os.OpenRoot(".")
	if err != nil {
		return err
	}
	op := args[firstArg-2]
	p.root, p.args = root, append(args[firstArg-1:], "", "", "")
	if op != OpWrite && op != OpAppend && op != OpUpload {
		idle.Stop() // it reads no input
	}
	switch op {
	case OpStat:
		return p.stat()
	case OpList:
		return p.list()
	case OpRead:
		return p.read()
	case OpWrite:
		return p.write()
	case OpAppend:
		return p.append()
	case OpMkdir:
		return p.mkdir()
	case OpRemove:
		return p.remove()
	case OpMove:
		return p.move()
	case OpSearch:
		return p.search()
	case OpWatch:
		return p.watch()
	case OpUpload:
		return p.upload()
	case OpDownload:
		return p.download()
	default:
		return &failure{codeInternal, op + ": unknown operation"}
	}
}

// number is an argument that is a number.
func (p *program) number(i int) (int64, error) {
	n, err := strconv.ParseInt(p.args[i], 10, 64)
	if err != nil {
		return 0, &failure{codeInvalid, p.args[i] + ": not a number"}
	}
	return n, nil
}

// setTemp sets what removes the temporary file; nil for none.
func (p *program) setTemp(drop func()) {
	p.mu.Lock()
	p.temp = drop
	p.mu.Unlock()
}

func (p *program) dropTemp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.temp != nil {
		p.temp()
		p.temp = nil
	}
}

// describe gives an error its code.
func describe(err error) *failure {
	text := err.Error()
	switch e := err.(type) {
	case *failure:
		return e
	case *os.PathError:
		text = e.Path + ": " + e.Err.Error()
	case *os.LinkError:
		text = e.Old + " to " + e.New + ": " + e.Err.Error()
	}
	text = strings.TrimPrefix(text, "./")
	switch { // errors of package os that are no error of the system
	case strings.HasSuffix(text, "path escapes from parent"):
		return &failure{codeInvalid, text + ": the path, or a symbolic link in it, leads out of the workspace"}
	case strings.HasSuffix(text, "not a directory"):
		return &failure{codeInvalid, text}
	}
	return &failure{codeOf(err), text}
}

// errno returns the system's error in an error of package os; 0 for none. errors.As would make the program larger.
func errno(err error) syscall.Errno {
	for {
		switch e := err.(type) {
		case syscall.Errno:
			return e
		case *os.PathError:
			err = e.Err
		case *os.LinkError:
			err = e.Err
		case *os.SyscallError:
			err = e.Err
		default:
			return 0
		}
	}
}

func codeOf(err error) string {
	if f, ok := err.(*failure); ok {
		return f.code
	}
	switch errno(err) {
	case syscall.ENOENT:
		return codeNotFound
	case syscall.EEXIST, syscall.ENOTEMPTY, syscall.EBUSY, syscall.ETXTBSY:
		return codeConflict
	case syscall.EISDIR, syscall.ENOTDIR, syscall.ELOOP, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ENXIO, syscall.EXDEV, syscall.EILSEQ:
		return codeInvalid
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return codeDenied
	case syscall.EFBIG:
		return codeTooLarge
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EMLINK:
		return codeLimit
	default:
		return codeInternal
	}
}
