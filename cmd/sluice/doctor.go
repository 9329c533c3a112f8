package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/diskspace"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/internal/projectquota"
	"github.com/sluice-dev/sluice/schemas"
)

func doctorCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can run and what is missing",
		Long: `Check what this machine can run and what is missing: "ok", "--" for something optional that is
missing, "!" for what works but is not limited as it should be, and "!!" for something required that
is missing. The exit code is 125 if something required is missing.`,
		Example: `  sluice doctor
  sluice doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := examine(cmd.Context(), g)
			if err := printResult(g.Main, asJSON, findings, printFindings); err != nil {
				return err
			}
			if slices.ContainsFunc(findings, finding.failed) {
				return exitCode(schemas.ExitSluiceFailed)
			}
			return nil
		},
	}
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

// finding is the result of one check.
type finding struct {
	Check    string `json:"check"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`
	// Warning reports that it works, but not as it should; Found says what is missing.
	Warning bool   `json:"warning,omitempty"`
	Found   string `json:"found"`
}

func (f finding) failed() bool { return f.Required && !f.OK }

func printFindings(m *Main, findings []finding) error {
	t := m.table()
	for _, f := range findings {
		mark := "ok"
		switch {
		case f.failed():
			mark = "!!"
		case !f.OK:
			mark = "--"
		case f.Warning:
			mark = "!"
		}
		t.row(mark, f.Check, f.Found)
	}
	return t.print()
}

func examine(ctx context.Context, g *globals) []finding {
	out := []finding{
		{Check: "system", OK: true, Required: true, Found: runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version() + ", sluice " + version},
		examineData(g), examineDisk(g.data), examineServer(g), examineFiles(),
	}
	run := filepath.Join(g.data, "run") // where the data folder cannot be used, the providers cannot use it either
	if dir, err := openFolder(g.data); err == nil {
		if short, err := dir.runFolder(); err == nil {
			run = short
		}
	}
	for _, c := range node.CheckProviders(ctx, run) {
		out = append(out, finding{Check: "provider " + c.Provider, OK: c.Err == nil, Warning: c.Partial, Found: c.Found})
	}
	return out
}

func examineData(g *globals) finding {
	f := finding{Check: "data folder", Required: true}
	err := os.MkdirAll(g.data, 0o700)
	if err == nil {
		var tmp *os.File
		if tmp, err = os.CreateTemp(g.data, ".doctor-*"); err == nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name()) // it is empty, should it stay
		}
	}
	if err != nil {
		f.Found = err.Error() + ": choose another folder with --data"
		return f
	}
	if dir, err := openFolder(g.data); err == nil {
		if _, err = dir.runFolder(); schemas.CodeOf(err) == schemas.CodePermissionDenied {
			f.Found = err.Error()
			return f
		}
	}
	f.OK, f.Found = true, g.data
	return f
}

// lowDisk is the free space below which the streams are too small to be of use.
const lowDisk = 1 << 30

func examineDisk(path string) finding {
	disk, err := diskspace.Of(path)
	if err != nil {
		return finding{Check: "disk", Found: err.Error()}
	}
	gib := func(n int64) float64 { return float64(n) / (1 << 30) }
	reserve := disk.Reserve(0)
	f := finding{Check: "disk", OK: disk.Free >= lowDisk, Found: fmt.Sprintf("%.1f GiB free for streams and workspaces", gib(disk.Free))}
	if disk.Free < reserve {
		f.Found += fmt.Sprintf(", less than the %.1f GiB that workers keep free: they start no process", gib(reserve))
	} else {
		f.Found += fmt.Sprintf("; workers start no process below %.1f GiB", gib(reserve))
	}
	if projectquota.Enforced(path) {
		f.Found += "; project quotas give workspaces hard limits"
	}
	if !f.OK {
		f.Found += ": free at least 1 GiB, or choose another folder with --data"
	}
	return f
}

// examineServer connects to the server that the other commands would use. One of --nats is required.
func examineServer(g *globals) finding {
	f := finding{Check: "server", OK: true, Required: g.nats != ""}
	dir := &dataFolder{path: g.data}
	a, known := dir.readAddress()
	server := g.serverAt(dir, a)
	switch {
	case g.nats != "":
		f.Found, server = schemas.PublicURL(g.nats)+" (--nats)", g.server()
	case !known || !a.HasServer():
		f.Found = "none is running: exec starts one in its own process; `sluice up` runs one for all commands"
		return f
	case a.URL != "":
		f.Found = fmt.Sprintf("%s, process %d", a.URL, a.PID)
	default:
		f.Found = fmt.Sprintf("in process %d, while its command runs", a.PID)
	}
	conn, err := events.Connect(*server)
	if err != nil {
		f.OK, f.Found = false, fmt.Sprintf("%s, does not answer: %v", f.Found, err)
		return f
	}
	conn.Close()
	return f
}

// neededFiles is how many open files a worker with 256 processes needs.
const neededFiles = 4096

func examineFiles() finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return finding{Check: "open files", Found: err.Error()}
	}
	f := finding{Check: "open files", OK: r.Cur >= neededFiles, Found: fmt.Sprint(r.Cur)}
	if !f.OK {
		f.Found += fmt.Sprintf(": raise the limit with `ulimit -n %d`", neededFiles)
	}
	return f
}
