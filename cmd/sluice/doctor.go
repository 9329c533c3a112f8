package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/schemas"
)

func (m *Main) doctorCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		Short:   "Say what this machine can do, and what is missing",
		Example: `  sluice doctor`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			w := tabwriter.NewWriter(m.Stdout, 0, 0, 2, ' ', 0)
			bad := 0
			for _, f := range m.examine(g) {
				mark := "ok"
				if !f.ok {
					mark = "--"
				}
				if !f.ok && f.needed {
					mark, bad = "!!", bad+1
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", mark, f.what, printable(f.found))
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if bad > 0 {
				return exitCode(schemas.ExitSluiceFailed)
			}
			return nil
		},
	}
}

// finding is one thing that was looked at.
type finding struct {
	what   string
	ok     bool
	needed bool // without it nothing works
	found  string
}

func (m *Main) examine(g *globals) []finding {
	jails, containers := examineJail(), examineDocker()
	return []finding{
		{"system", true, true, runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version() + ", sluice " + version},
		m.examineData(g), examineDisk(g.data), m.examineServer(g), examineFiles(),
		{"provider local", true, false, "works everywhere and isolates nothing: choose it by --provider local if you trust what you run"},
		jails, containers, choice(jails.ok, containers.ok),
	}
}

func (m *Main) examineData(g *globals) finding {
	f := finding{what: "data folder", needed: true, found: g.data}
	if err := os.MkdirAll(g.data, 0o700); err != nil {
		f.found = err.Error() + ": choose another with --data"
		return f
	}
	tmp, err := os.CreateTemp(g.data, ".doctor-*")
	if err != nil {
		f.found = err.Error() + ": choose another with --data"
		return f
	}
	_ = tmp.Close()
	_ = os.Remove(tmp.Name()) // an empty file, should it stay
	f.ok = true
	return f
}

// lowDisk is when the streams get too little room to be of use.
const lowDisk = 1 << 30

func examineDisk(path string) finding {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return finding{what: "disk", found: err.Error()}
	}
	free := st.Bavail * uint64(st.Bsize)
	f := finding{what: "disk", ok: free >= lowDisk, found: fmt.Sprintf("%.1f GiB free for streams and workspaces", float64(free)/(1<<30))}
	if !f.ok {
		f.found += ": make room, or choose another folder with --data"
	}
	return f
}

func (m *Main) examineServer(g *globals) finding {
	f := finding{what: "server", ok: true}
	switch a, known := (&folder{path: g.data}).readAddress(); {
	case g.nats != "":
		f.found = g.nats + " (--nats)"
	case known && a.URL != "":
		f.found = fmt.Sprintf("%s, process %d", a.URL, a.PID)
	default:
		f.found = "none is running: exec starts one in itself; `sluice up` runs one for all"
	}
	return f
}

// wantFiles is how many open files a worker with its full number of processes needs.
const wantFiles = 4096

func examineFiles() finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return finding{what: "open files", found: err.Error()}
	}
	f := finding{what: "open files", ok: r.Cur >= wantFiles, found: fmt.Sprint(r.Cur)}
	if !f.ok {
		f.found += fmt.Sprintf(": raise it with `ulimit -n %d`", wantFiles)
	}
	return f
}

// choice is what --provider auto comes to, given which of the providers that isolate run here.
func choice(jails, containers bool) finding {
	f := finding{what: "provider auto", ok: true}
	switch {
	case jails && containers:
		f.found = "jail; `sluice exec --image IMAGE` makes a container"
	case jails:
		f.found = "jail"
	case containers:
		f.found = "docker: say by --image of what its containers are made"
	default:
		f.ok, f.found = false, "nothing isolates commands here: one of the two lines above has to be mended"
	}
	return f
}

func examineJail() finding {
	limits, err := jail.Check()
	if err != nil {
		return finding{what: "provider jail", found: err.Error()}
	}
	return finding{what: "provider jail", ok: true, found: "isolates by namespaces, system call filter and limits; " + strings.TrimPrefix(limits, "provider jail: ")}
}

// dockerPatience is how long the engine may take to say its version.
const dockerPatience = 5 * time.Second

func examineDocker() finding {
	f := finding{what: "provider docker"}
	if runtime.GOOS != "linux" {
		f.found = "it needs Linux"
		return f
	}
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	engine, err := docker.Probe(ctx, "")
	if err != nil {
		f.found = err.Error()
		return f
	}
	f.ok, f.found = true, "engine "+engine
	return f
}
