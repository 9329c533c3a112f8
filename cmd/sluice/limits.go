package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func limitsCommand(g *globals) *cobra.Command {
	var thread, process string
	var asJSON bool
	c := &cobra.Command{
		Use:   "limits",
		Short: "Show the limits, how much of them is used, and what happens beyond them",
		Long: `Show the limits of the streams, of the output of the tenant and of a process, of each worker, and of
workspaces; how much of each is used; and what happens beyond it. It starts no server: without one
it fails. A template may set other limits of workspaces: see ` + "`sluice template show`" + `.`,
		Example: `  sluice limits
  sluice limits --json
  sluice limits --process p1q2w3…      # how much output is kept of this process`,
		Args: noArgs,
		RunE: g.withStatus(func(ctx context.Context, c *client.Client, s *schemas.Status) error {
			var output *int64
			if process != "" {
				p, err := c.Process(ctx, thread, process)
				if errors.Is(err, schemas.ErrNotFound) {
					return schemas.Errorf(schemas.CodeNotFound, "%w: `sluice process list --all` shows those on record", err)
				}
				if err != nil {
					return err
				}
				n, err := p.LogBytes(ctx)
				if err != nil {
					return err
				}
				output = &n
			}
			return printResult(g.Main, asJSON, limitsOf(s, output), printLimits)
		}),
	}
	c.Flags().StringVar(&process, "process", "", "show how much output of this `PROCESS` is kept")
	threadFlag(c, &thread, "", "`THREAD` of the process; default: found by the process id")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

// limitLine is one limit.
type limitLine struct {
	// Name is what is bounded, Worker the worker whose limit it is.
	Name   string `json:"name"`
	Worker string `json:"worker,omitempty"`
	Unit   string `json:"unit"`
	// Used is nil where it differs from one thread or process to another, Max 0 where there is no limit.
	Used *int64 `json:"used,omitempty"`
	Max  int64  `json:"max,omitempty"`
	// Beyond is what happens beyond the limit.
	Beyond string `json:"beyond"`

	label string // for people
}

const (
	unitBytes     = "bytes"
	unitFiles     = "files"
	unitProcesses = "processes"
	unitSessions  = "sessions"
	unitSandboxes = "sandboxes"
	unitCPUs      = "CPUs"
)

// limitsOf lists the limits in a status. output is how much output of a process is kept; nil for no process.
func limitsOf(s *schemas.Status, output *int64) []limitLine {
	list := []limitLine{}
	for _, stream := range s.Streams {
		if l, ok := streamLimit(&stream); ok {
			list = append(list, l)
		}
	}
	if s.Records != nil {
		list = append(list, limitLine{Name: "tenant_records", label: "records of tenant " + s.Tenant, Unit: unitBytes, Used: &s.Records.TenantBytes, Max: s.Records.MaxTenantBytes,
			Beyond: "its direct commands are refused, its queued ones wait"})
	}
	if s.Log != nil {
		const dropped = "its own oldest output is dropped"
		list = append(list,
			limitLine{Name: "tenant_output", label: "output of tenant " + s.Tenant, Unit: unitBytes, Used: &s.Log.TenantBytes, Max: s.Log.MaxTenantBytes, Beyond: dropped},
			limitLine{Name: "process_output", label: "output of a process", Unit: unitBytes, Used: output, Max: s.Log.MaxProcessBytes, Beyond: dropped})
	}
	for _, w := range s.Workers {
		if !w.Alive || w.Limits == nil {
			continue
		}
		const (
			rejected = "growing processes are killed, later commands rejected"
			waits    = "its direct commands are refused, its queued ones wait"
		)
		processes, sessions, sandboxes := int64(w.Processes), int64(w.Sessions), int64(w.Sandboxes)
		list = append(list,
			limitLine{Name: "processes", label: "processes at once", Worker: w.ID, Unit: unitProcesses, Used: &processes, Max: int64(w.Limits.Processes),
				Beyond: "direct commands are refused, queued ones wait"},
			limitLine{Name: "tenant_processes", label: "processes of a tenant", Worker: w.ID, Unit: unitProcesses, Max: int64(w.Limits.TenantProcesses), Beyond: waits},
			limitLine{Name: "thread_processes", label: "processes of a thread", Worker: w.ID, Unit: unitProcesses, Max: int64(w.Limits.ThreadProcesses), Beyond: waits},
			limitLine{Name: "sessions", label: "sessions at once", Worker: w.ID, Unit: unitSessions, Used: &sessions, Max: int64(w.Limits.Sessions),
				Beyond: "direct commands of further threads are refused, queued ones wait"},
			limitLine{Name: "tenant_sessions", label: "sessions of a tenant", Worker: w.ID, Unit: unitSessions, Max: int64(w.Limits.TenantSessions), Beyond: waits},
			limitLine{Name: "sandboxes", label: "sandboxes at once", Worker: w.ID, Unit: unitSandboxes, Used: &sandboxes, Max: int64(w.Limits.Sandboxes),
				Beyond: "direct commands that need one are refused, queued ones wait"},
			limitLine{Name: "tenant_sandboxes", label: "sandboxes of a tenant", Worker: w.ID, Unit: unitSandboxes, Max: int64(w.Limits.TenantSandboxes), Beyond: waits},
			limitLine{Name: "tenant_memory", label: "memory of a tenant's sandboxes", Worker: w.ID, Unit: unitBytes, Max: w.Limits.TenantMemoryBytes, Beyond: waits},
			limitLine{Name: "tenant_cpus", label: "CPUs of a tenant's sandboxes", Worker: w.ID, Unit: unitCPUs, Max: int64(w.Limits.TenantCPUs), Beyond: waits},
			limitLine{Name: "workspace_bytes", label: "size of a workspace", Worker: w.ID, Unit: unitBytes, Max: w.Limits.WorkspaceBytes, Beyond: rejected},
			limitLine{Name: "workspace_files", label: "files of a workspace", Worker: w.ID, Unit: unitFiles, Max: w.Limits.WorkspaceFiles, Beyond: rejected},
			limitLine{Name: "file_bytes", label: "size of a file", Worker: w.ID, Unit: unitBytes, Max: w.Limits.FileBytes, Beyond: "the process that writes more is killed"})
		if w.Disk != nil {
			list = append(list, limitLine{Name: "min_free_bytes", label: "space kept free on the disk", Worker: w.ID, Unit: unitBytes, Max: w.Disk.MinFreeBytes,
				Beyond: "direct commands are refused, queued ones wait"})
		}
	}
	return list
}

// streamLimit is the limit of one of the cell's streams; false for its buckets, which have none.
func streamLimit(s *schemas.StreamStatus) (l limitLine, ok bool) {
	used := int64(s.Bytes)
	l = limitLine{Unit: unitBytes, Used: &used, Max: s.MaxBytes}
	switch s.Name[strings.LastIndex(s.Name, "-")+1:] {
	case "CMD":
		l.Name, l.label, l.Beyond = "commands", "commands (CMD)", "commands cannot be queued"
	case "EVT":
		l.Name, l.label, l.Beyond = "records", "records (EVT)", "direct commands are refused, queued ones wait"
		l.Max = s.RefuseBytes
	case "LOG":
		l.Name, l.label, l.Beyond = "output", "output (LOG)", "the oldest output is dropped"
	case "MSG":
		l.Name, l.label, l.Beyond = "messages", "messages (MSG)", "further messages are refused"
	case "DLQ":
		l.Name, l.label, l.Beyond = "dead_letters", "dead letters (DLQ)", "the oldest dead letters are dropped"
	default:
		return l, false
	}
	return l, true
}

func printLimits(m *Main, list []limitLine) error {
	t := m.list("the cell has no limits yet: start a worker with `sluice up` or `sluice worker`", "LIMIT", "WORKER…", "USED", "MOST", "FULL", "BEYOND IT…").leaveOut("WORKER", "BEYOND IT", "FULL")
	for _, l := range list {
		used, most, full := "", "none", ""
		if l.Used != nil {
			used = l.amount(*l.Used)
		}
		if l.Max > 0 {
			most = l.amount(l.Max)
		}
		if l.Used != nil && l.Max > 0 {
			full = fmt.Sprintf("%.0f%%", 100*float64(*l.Used)/float64(l.Max))
		}
		t.row(l.label, l.Worker, used, most, full, l.Beyond)
	}
	return t.print()
}

func (l *limitLine) amount(n int64) string {
	if l.Unit == unitBytes {
		return byteSize(n)
	}
	return fmt.Sprint(n)
}
