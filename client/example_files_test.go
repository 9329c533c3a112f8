package client_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/client"
)

// A file is written as a whole, and read whole or in part. Commands of the thread see it in their workspace.
func ExampleFiles_WriteFile() {
	c, done := example()
	defer done()
	ctx := context.Background()

	files := c.Files("conversation-1")
	if _, err := files.WriteFile(ctx, "in/words.txt", []byte("pear\napple\n"), client.FileParents()); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	if _, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "sort", Args: []string{"-o", "out.txt", "in/words.txt"}}); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	content, err := files.ReadFile(ctx, "out.txt")
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(string(content))
	// Output:
	// apple
	// pear
}

// Open reads a file of any size while it arrives, from an offset on.
func ExampleFiles_Open() {
	c, done := example()
	defer done()
	ctx := context.Background()

	files := c.Files("conversation-1")
	if _, err := files.Write(ctx, "log.txt", strings.NewReader("one\ntwo\n")); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	part, err := files.Open(ctx, "log.txt", client.FilePart{Offset: 4})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer part.Close()
	_, _ = io.Copy(os.Stdout, part)
	// Output:
	// two
}

// List yields the entries of a folder, and Search finds names and lines below it.
func ExampleFiles_List() {
	c, done := example()
	defer done()
	ctx := context.Background()

	files := c.Files("conversation-1")
	for name, text := range map[string]string{"main.go": "package main\n\n// TODO: say hello\n", "notes/today.txt": "nothing\n"} {
		if _, err := files.WriteFile(ctx, name, []byte(text), client.FileParents()); err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
	}
	for entry, err := range files.List(ctx, "") {
		if err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
		fmt.Println(entry.Type, entry.Path)
	}
	found, _, err := files.Search(ctx, client.FileQuery{Name: "*.go", Text: "TODO"})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Printf("%s:%d: %s\n", found[0].Path, found[0].Line, found[0].Text)
	// Output:
	// file main.go
	// folder notes
	// main.go:3: // TODO: say hello
}

// CopyIn and CopyOut copy files and folders between this machine and the workspace, as `docker cp` does.
func ExampleFiles_CopyIn() {
	c, done := example()
	defer done()
	ctx := context.Background()

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "data.csv"), []byte("1,2\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	files := c.Files("conversation-1")
	count, size, err := files.CopyIn(ctx, dir, "data")
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Println(count, "file of", size, "bytes in")
	if _, _, err := files.CopyOut(ctx, "data/data.csv", filepath.Join(dir, "back.csv")); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	back, err := os.ReadFile(filepath.Join(dir, "back.csv"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(back))
	// Output:
	// 1 file of 4 bytes in
	// 1,2
}

// Upload and Download stream a folder as tar: from one workspace to another here, without a file in between.
func ExampleFiles_Upload() {
	c, done := example()
	defer done()
	ctx := context.Background()

	from, to := c.Files("conversation-1"), c.Files("conversation-2")
	if _, err := from.WriteFile(ctx, "site/index.html", []byte("<h1>hello</h1>\n"), client.FileParents()); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	tar, err := from.Download(ctx, "site")
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer tar.Close()
	if _, _, err := to.Upload(ctx, "public", tar); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	content, err := to.ReadFile(ctx, "public/site/index.html")
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(string(content))
	// Output:
	// <h1>hello</h1>
}

// Watch yields what changes from its first entry on, which has the change ready.
func ExampleFiles_Watch() {
	c, done := example()
	defer done()
	ctx := context.Background()

	files := c.Files("conversation-1")
	for entry, err := range files.Watch(ctx, "") {
		if err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
		fmt.Println(entry.Change, entry.Path)
		if entry.Change != "ready" {
			break
		}
		if _, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "touch", Args: []string{"report.txt"}}); err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
	}
	// Output:
	// ready .
	// created report.txt
}
