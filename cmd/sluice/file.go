package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func fileCommand(g *globals) *cobra.Command {
	return withCommands(&cobra.Command{
		Use:   "file",
		Short: "Work on the files of a thread's workspace",
		Long: `Work on the files of a thread's workspace, in its sandbox and as its user. A place is THREAD:PATH,
where PATH is relative to the workspace, or begins with the workspace's path in the sandbox. A
thread without a session gets one. "sluice cp" copies files and folders.`,
		Example: `  sluice file ls t1:
  sluice file cat t1:out.csv
  echo hello | sluice file put - t1:in/hello.txt`,
	}, fileListCommand(g), fileCatCommand(g), filePutCommand(g), fileRemoveCommand(g), fileStatCommand(g), fileMkdirCommand(g),
		fileMoveCommand(g), fileSearchCommand(g), fileWatchCommand(g))
}

// place is a path in the workspace of a thread.
type place struct{ thread, path string }

// parsePlace reads THREAD:PATH. What has no colon, or begins like a path, is a path of this machine.
func parsePlace(arg string) (place, bool) {
	thread, path, ok := strings.Cut(arg, ":")
	return place{thread, path}, ok && thread != "" && !strings.ContainsAny(thread, `/\.`)
}

// needPlace is parsePlace for an argument that must be one.
func needPlace(c *cobra.Command, arg string) (place, error) {
	p, ok := parsePlace(arg)
	if !ok {
		return p, schemas.Errorf(schemas.CodeInvalidArgument, "%q names no thread: write THREAD:PATH, see `%s --help`", arg, c.CommandPath())
	}
	return p, schemas.CheckID("thread", p.thread)
}

// onFile is the action of a command whose first argument is a place.
func (g *globals) onFile(f func(ctx context.Context, files *client.Files, path string, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		p, err := needPlace(c, args[0])
		if err != nil {
			return err
		}
		return g.act(func(ctx context.Context, c *client.Client, args []string) error {
			return fileError(f(ctx, c.Files(p.thread), p.path, args[1:]), p.thread)
		})(c, args)
	}
}

// fileError adds the way out to the error of a file that does not exist in the workspace.
func fileError(err error, thread string) error {
	if !errors.Is(err, schemas.ErrNotFound) || schemas.AsError(err).Details[client.DetailLocal] != "" {
		return err
	}
	return schemas.Errorf(schemas.CodeNotFound, "%w: `sluice file ls %s:` shows what is there", err, thread)
}

func (g *globals) printEntries(asJSON bool, list []schemas.FileEntry) error {
	return printResult(g.Main, asJSON, list, func(m *Main, list []schemas.FileEntry) error {
		t := m.list("no file or folder is there", "TYPE", "MODE", "SIZE", "MODIFIED", "PATH…").leaveOut("MODE", "MODIFIED", "TYPE")
		for _, e := range list {
			name, modified := strconv.Quote(e.Path), ""
			if name = name[1 : len(name)-1]; e.Target != "" {
				name += " -> " + e.Target
			}
			if e.Modified != nil {
				modified = localTime(*e.Modified)
			}
			t.row(e.Type, e.Mode, byteSize(e.Size), modified, name)
		}
		return t.print()
	})
}

func fileListCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls THREAD:[PATH]", Short: "List a folder", Example: "  sluice file ls t1:\n  sluice file ls t1:src --json",
		Args: exactArgs(1, "one THREAD:PATH"),
		RunE: g.onFile(func(ctx context.Context, files *client.Files, path string, _ []string) error {
			list := []schemas.FileEntry{}
			for e, err := range files.List(ctx, path) {
				if err != nil {
					return err
				}
				list = append(list, e)
			}
			return g.printEntries(asJSON, list)
		}),
	}
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func fileStatCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "stat THREAD:PATH", Short: "Show what a path is", Example: "  sluice file stat t1:out.csv",
		Args: exactArgs(1, "one THREAD:PATH"),
		RunE: g.onFile(func(ctx context.Context, files *client.Files, path string, _ []string) error {
			e, err := files.Stat(ctx, path)
			if err != nil {
				return err
			}
			return g.printEntries(asJSON, []schemas.FileEntry{*e})
		}),
	}
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func fileCatCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "cat THREAD:PATH", Short: "Print a file", Example: "  sluice file cat t1:out.csv",
		Args: exactArgs(1, "one THREAD:PATH"),
		RunE: g.onFile(func(ctx context.Context, files *client.Files, path string, _ []string) error {
			r, err := files.Open(ctx, path, client.FilePart{})
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(g.Stdout, r)
			return err
		}),
	}
}

func filePutCommand(g *globals) *cobra.Command {
	var add bool
	c := &cobra.Command{
		Use: "put FILE|- THREAD:PATH", Short: "Write a file, as a whole",
		Long: "Write a file from one of this machine, or from standard input. A reader sees the old content or the\nnew one. Missing folders are made.",
		Example: `  sluice file put report.csv t1:in/report.csv
  echo more | sluice file put --append - t1:log.txt`,
		Args: exactArgs(2, "FILE or -, and THREAD:PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := needPlace(c, args[1])
			if err != nil {
				return err
			}
			from := g.Stdin
			if args[0] != "-" {
				if info, err := os.Stat(args[0]); err == nil && !info.Mode().IsRegular() { // reading it may never end
					return schemas.Errorf(schemas.CodeInvalidArgument, "%s is not a file: pass its content on standard input, and write - for FILE", args[0])
				}
				if from, err = os.Open(args[0]); err != nil {
					return schemas.Errorf(schemas.CodeNotFound, "%w", err)
				}
				defer from.Close()
			}
			return g.act(func(ctx context.Context, c *client.Client, _ []string) error {
				put := c.Files(p.thread).Write
				if add {
					put = c.Files(p.thread).Append
				}
				_, err := put(ctx, p.path, from, client.FileParents())
				return err
			})(c, nil)
		},
	}
	c.Flags().BoolVar(&add, "append", false, "add to the end of the file")
	return c
}

func fileRemoveCommand(g *globals) *cobra.Command {
	var recursive bool
	c := &cobra.Command{
		Use: "rm THREAD:PATH", Short: "Remove a file or a folder", Example: "  sluice file rm t1:out.csv\n  sluice file rm -r t1:old",
		Args: exactArgs(1, "one THREAD:PATH"),
		RunE: g.onFile(func(ctx context.Context, files *client.Files, path string, _ []string) error {
			if recursive {
				return files.RemoveAll(ctx, path)
			}
			err := files.Remove(ctx, path)
			if errors.Is(err, schemas.ErrConflict) {
				return schemas.Errorf(schemas.CodeConflict, "%w: --recursive removes a folder with its content", err)
			}
			return err
		}),
	}
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove a folder with its content")
	return c
}

func fileMkdirCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "mkdir THREAD:PATH", Short: "Make a folder, and the folders above it", Example: "  sluice file mkdir t1:in/data",
		Args: exactArgs(1, "one THREAD:PATH"),
		RunE: g.onFile(func(ctx context.Context, files *client.Files, path string, _ []string) error {
			_, err := files.Mkdir(ctx, path, client.FileParents())
			return err
		}),
	}
}

func fileMoveCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "mv THREAD:PATH PATH", Short: "Rename a file or a folder",
		Long: `Rename a file or a folder of a workspace. PATH is the new path in the same workspace, whose folder
exists; a file there is replaced.`,
		Example: "  sluice file mv t1:draft.txt done/report.txt",
		Args:    exactArgs(2, "THREAD:PATH and the new PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			if from, ok := parsePlace(args[0]); ok { // the thread may be repeated, as for cp
				if to, both := parsePlace(args[1]); both && to.thread == from.thread {
					args[1] = to.path
				} else if both {
					return schemas.Errorf(schemas.CodeInvalidArgument,
						"%s is in another workspace: copy it, with `sluice cp %s - | sluice cp - %s:`", args[1], args[0], to.thread)
				}
			}
			return g.onFile(func(ctx context.Context, files *client.Files, path string, args []string) error {
				_, err := files.Move(ctx, path, args[0])
				return err
			})(c, args)
		},
	}
}

func fileSearchCommand(g *globals) *cobra.Command {
	var q client.FileQuery
	var asJSON bool
	c := &cobra.Command{
		Use: "search THREAD:[PATH]", Short: "Find files by name, and lines by their text",
		Long: `Find files and folders below a folder by their name, or with --text lines that contain a text, as
PATH:LINE:TEXT. It finds at most 1,000.`,
		Example: "  sluice file search t1: --name '*.csv'\n  sluice file search t1:src --name '*.go' --text TODO",
		Args:    exactArgs(1, "one THREAD:PATH"),
		RunE: g.onFile(func(ctx context.Context, files *client.Files, path string, _ []string) error {
			q.Path = path
			found, more, err := files.Search(ctx, q)
			if err != nil {
				return err
			}
			if more {
				g.notice("there is more: name a folder, or a longer text")
			}
			if q.Text == "" || asJSON {
				return g.printEntries(asJSON, found)
			}
			for _, e := range found {
				fmt.Fprintf(g.Stdout, "%s:%d:%s\n", oneLine(e.Path), e.Line, oneLine(e.Text))
			}
			return nil
		}),
	}
	c.Flags().StringVar(&q.Name, "name", "", "`PATTERN` of names, with * ? [ ]")
	c.Flags().StringVar(&q.Text, "text", "", "`TEXT` that a line contains")
	jsonFlag(c, &asJSON, "one JSON array")
	return c
}

func fileWatchCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "watch THREAD:[PATH]", Short: "Print changes as they come, as lines of JSON",
		Long: `Print what is created, changed or removed at or below a path, as lines of JSON, until Ctrl+C. The
first line has the change "ready": what changes from then on is printed.`,
		Example: "  sluice file watch t1:out", Args: exactArgs(1, "one THREAD:PATH"),
		RunE: g.onFile(func(ctx context.Context, files *client.Files, path string, _ []string) error {
			print := jsonLines[schemas.FileEntry](g.Main)
			for e, err := range files.Watch(ctx, path) {
				if err != nil {
					return err
				}
				if err := print(e); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func copyCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files and folders into a workspace, or out of it",
		Long: `Copy a file or a folder into a thread's workspace, or out of it. One of FROM and TO is THREAD:PATH,
and the other a path of this machine, or - for a tar stream on standard input or output. As with
"docker cp", a folder is copied into one that exists, and with /. at the end only its content. A
symbolic link is copied as a link, unless FROM ends with /.`,
		Example: `  sluice cp data t1:in
  sluice cp t1:out/. results
  tar c src | sluice cp - t1:
  sluice cp t1:src - | tar t`,
		Args: exactArgs(2, "FROM and TO"),
		RunE: func(c *cobra.Command, args []string) error {
			from, out := parsePlace(args[0])
			to, in := parsePlace(args[1])
			if in == out {
				return schemas.Errorf(schemas.CodeInvalidArgument, "one of FROM and TO must be THREAD:PATH, and the other a path of this machine or -: see `%s --help`", c.CommandPath())
			}
			p := from
			if in {
				p = to
			}
			if err := schemas.CheckID("thread", p.thread); err != nil {
				return err
			}
			return g.act(func(ctx context.Context, c *client.Client, args []string) error {
				if in {
					return g.copyIn(ctx, c.Files(p.thread), args[0], p.path)
				}
				return fileError(g.copyOut(ctx, c.Files(p.thread), p.path, args[1]), p.thread)
			})(c, args)
		},
	}
	return c
}

func (g *globals) copyIn(ctx context.Context, files *client.Files, local, to string) error {
	var err error
	if local == "-" {
		_, _, err = files.Upload(ctx, to, g.Stdin)
	} else {
		_, _, err = files.CopyIn(ctx, local, to)
	}
	if _, missing := os.Lstat(local); err != nil && local != "-" && errors.Is(missing, os.ErrNotExist) {
		return schemas.Errorf(schemas.CodeNotFound, "copy into the workspace: %s does not exist on this machine: check the path, which is relative to the current folder", local)
	}
	return err
}

func (g *globals) copyOut(ctx context.Context, files *client.Files, from, local string) error {
	if local != "-" {
		_, _, err := files.CopyOut(ctx, from, local)
		return err
	}
	if f, ok := g.Stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "standard output is a terminal: pass the tar stream to a file or a program")
	}
	r, err := files.Download(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(g.Stdout, r)
	return err
}
