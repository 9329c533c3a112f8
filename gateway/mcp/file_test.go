package mcp_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/gateway/mcp"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// file is a file as a caller decodes it.
type file struct {
	output
	Path, Type, Mode, Target string
	Replaced                 int
}

func TestFilesAreWrittenReadAndEdited(t *testing.T) {
	a := serve(t, mcp.Config{Client: cell(t), Thread: "t"})
	var f file
	a.call("write_file", args{"path": "src/a.txt", "content": "one\ntwo\ntwo\n", "mode": "750"}, &f)
	testkit.Equal(t, "mode", f.Mode, "750")
	a.call("write_file", args{"path": "src/a.txt", "content": "thrée\n", "append": true}, &f)
	f = file{}
	a.call("read_file", args{"path": "src/a.txt"}, &f)
	testkit.Equal(t, "content", f.Text, "one\ntwo\ntwo\nthrée\n")
	testkit.Equal(t, "more", f.More, false)
	// 16 bytes end in the middle of é.
	f = file{}
	a.call("read_file", args{"path": "src/a.txt", "max_bytes": 16}, &f)
	testkit.Equal(t, "the first bytes", f.output, output{Text: "one\ntwo\ntwo\nthr", NextOffset: 15, More: true})
	f = file{}
	a.call("read_file", args{"path": "src/a.txt", "max_bytes": 16, "offset": 15}, &f)
	testkit.Equal(t, "the rest", f.output, output{Text: "ée\n", Offset: 15, NextOffset: 19})

	edits := func(e ...args) args { return args{"path": "src/a.txt", "edits": e} }
	testkit.Contains(t, "error", a.fails(schemas.CodeInvalidArgument, "edit_file", edits(args{"old_text": "two", "new_text": "2"})), "2 times")
	testkit.Contains(t, "error", a.fails(schemas.CodeInvalidArgument, "edit_file", edits(
		args{"old_text": "one", "new_text": "1"}, args{"old_text": "four", "new_text": "4"})), "edits[1]")
	a.call("edit_file", edits(args{"old_text": "two", "new_text": "2", "all": true}, args{"old_text": "one\n", "new_text": ""}), &f)
	testkit.Equal(t, "replaced", f.Replaced, 3)
	testkit.Equal(t, "mode after the edit", f.Mode, "750")
	testkit.Equal(t, "content", a.run("cat src/a.txt").Stdout.Text, "2\n2\nthrée\n")
	a.run("ln -s a.txt src/link")
	testkit.Contains(t, "error", a.fails(schemas.CodeInvalidArgument, "edit_file", args{"path": "src/link", "edits": []args{{"old_text": "2", "new_text": "3"}}}), "a.txt")

	binary := "\x00\xff\xfe\x01"
	a.call("write_file", args{"path": "b", "content": base64.StdEncoding.EncodeToString([]byte(binary)), "encoding": "base64"}, &f)
	f = file{}
	a.call("read_file", args{"path": "b", "encoding": "base64"}, &f)
	testkit.Equal(t, "binary content", f.Text, base64.StdEncoding.EncodeToString([]byte(binary)))
	f = file{}
	a.call("read_file", args{"path": "b"}, &f)
	testkit.Equal(t, "binary content as text", f.Text, "\x00\uFFFD\x01")
	testkit.Equal(t, "binary", f.Binary, true)
}

func TestFilesAreListedAndSearched(t *testing.T) {
	a := serve(t, mcp.Config{Client: cell(t), Thread: "t"})
	a.run("mkdir d; cd d; for i in $(seq 100 107); do echo \"line $i\" >f$i.txt; done; ln -s f100.txt link")
	var list struct {
		Entries   []file
		NextAfter string `json:"next_after"`
	}
	names := ""
	for pages := 1; ; pages++ {
		list.Entries, list.NextAfter = nil, ""
		in := args{"path": "d", "limit": 4}
		if names != "" {
			in["after"] = names[strings.LastIndex(names, "/")+1 : len(names)-1]
		}
		a.call("list_files", in, &list)
		for _, e := range list.Entries {
			names += e.Path + " "
		}
		if list.NextAfter == "" {
			testkit.Equal(t, "pages", pages, 3)
			break
		}
	}
	testkit.Equal(t, "names", names, "d/f100.txt d/f101.txt d/f102.txt d/f103.txt d/f104.txt d/f105.txt d/f106.txt d/f107.txt d/link ")
	testkit.Equal(t, "link", list.Entries[0].Target, "f100.txt")
	var found struct {
		Matches []struct {
			Path, Text string
			Line       int
		}
		More bool
	}
	a.call("search_files", args{"text": "line 10", "name": "*.txt", "limit": 3}, &found)
	testkit.Equal(t, "matches", fmt.Sprint(len(found.Matches), found.More, found.Matches[0].Line), "3 true 1")
}

func TestInvalidCallsAreRefused(t *testing.T) {
	a := serve(t, mcp.Config{Client: cell(t), Thread: "t"})
	invalid := schemas.CodeInvalidArgument
	a.run("ln -s /etc out; ln -s /etc/passwd secret; mkfifo pipe; mkdir d")
	for _, path := range []string{"../x", "/etc/passwd", "out/passwd", "secret", "a/../../x", "pipe", "d", strings.Repeat("x", 300), "a\x00b"} {
		a.fails(invalid, "read_file", args{"path": path})
	}
	for _, path := range []string{"../x", "/etc/sluice", "out/x", "d"} {
		a.fails(invalid, "write_file", args{"path": path, "content": "x"})
	}
	a.fails(invalid, "list_files", args{"path": "../.."})
	a.fails(invalid, "search_files", args{"path": "/", "text": "root"})
	testkit.Contains(t, "error", a.fails(schemas.CodeNotFound, "read_file", args{"path": "no/such/file"}), "list_files")
	a.fails(schemas.CodeNotFound, "edit_file", args{"path": "none", "edits": []args{{"old_text": "a", "new_text": "b"}}})
	a.fails(invalid, "edit_file", args{"path": "d", "edits": []args{}})
	a.fails(invalid, "write_file", args{"path": "x", "content": "no base64!", "encoding": "base64"})
	a.fails(invalid, "write_file", args{"path": "x", "content": "x", "mode": "999"})
	a.fails(schemas.CodeTooLarge, "write_file", args{"path": "x", "content": strings.Repeat("x", 1<<20+1)})
	a.fails(schemas.CodeNotFound, "read_file", args{"path": "x"})

	a.fails(invalid, "run_command", args{})
	a.fails(invalid, "run_command", args{"command": "true", "argv": []string{"true"}})
	a.fails(invalid, "run_command", args{"command": "true", "timeout_seconds": 0})
	a.fails(invalid, "run_command", args{"command": "true", "timeout_seconds": 1e12})
	a.fails(invalid, "run_command", args{"command": "true", "max_bytes": 1 << 30})
	a.fails(invalid, "run_command", args{"command": "true", "cwd": "../.."})
	a.fails(invalid, "run_command", args{"command": 7})
	a.fails(invalid, "run_command", args{"command": "true", "thread": "other"}) // the server has one
	a.fails(invalid, "run_command", args{"command": "true", "unknown": "x"})
	a.fails(schemas.CodeTooLarge, "run_command", args{"command": "true #" + strings.Repeat("x", 2<<20)})
	a.fails(schemas.CodeTooLarge, "run_command", args{"command": "cat", "stdin": strings.Repeat("x", 2<<20)})
	a.fails(invalid, "read_output", args{"process": "../../x"})
	a.fails(schemas.CodeNotFound, "read_output", args{"process": "p0000000000000000000000000"})
	a.fails(schemas.CodeNotFound, "stop_process", args{"process": "p0000000000000000000000000"})
	a.fails(invalid, "read_output", args{"process": "p", "stdout_offset": -1})
	if _, err := a.raw(a.ctx, "no_such_tool", args{}, nil); err == nil {
		t.Error("a tool that does not exist was called")
	}
	testkit.Equal(t, "the server goes on", a.run("echo on").Stdout.Text, "on\n")
}

// A server of one thread serves no other one, by no id.
func TestOneThreadIsServed(t *testing.T) {
	c := cell(t)
	a, all := serve(t, mcp.Config{Client: c, Thread: "t"}), serve(t, mcp.Config{Client: c})
	var other ran
	all.call("run_command", args{"thread": "u", "command": "echo secret | tee file"}, &other)
	testkit.Equal(t, "thread", other.Thread, "u")
	all.fails(schemas.CodeInvalidArgument, "run_command", args{"command": "true"})
	all.fails(schemas.CodeInvalidArgument, "run_command", args{"command": "true", "thread": "a b"})
	a.fails(schemas.CodeNotFound, "read_output", args{"process": other.Process})
	a.fails(schemas.CodeNotFound, "stop_process", args{"process": other.Process})
	for _, uri := range []string{"sluice://files/u/file", "sluice://logs/u/" + other.Process + "/stdout", "sluice://logs/t/" + other.Process + "/stdout"} {
		if r, err := a.ReadResource(a.ctx, &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s was read: %+v", uri, r.Contents[0])
		}
	}
}

func TestResourcesAreRead(t *testing.T) {
	c := cell(t)
	a := serve(t, mcp.Config{Client: c, Thread: "t"})
	read := func(uri string) *sdk.ResourceContents {
		t.Helper()
		r, err := a.ReadResource(a.ctx, &sdk.ReadResourceParams{URI: uri})
		testkit.Must(t, err)
		return r.Contents[0]
	}
	r := a.run(`mkdir 'a b'; echo content >'a b/f%.txt'; printf '\377\000' >bin; head -c 300000 /dev/zero | tr '\0' x >long; cat long; echo end; echo trouble >&2`)
	testkit.Equal(t, "file", read("sluice://files/t/a%20b/f%25.txt").Text, "content\n")
	testkit.Equal(t, "binary file", string(read("sluice://files/t/bin").Blob), "\xff\x00")
	long := read("sluice://files/t/long")
	testkit.Equal(t, "bytes of a long file", len(long.Text), 256<<10)
	testkit.Equal(t, "where it goes on", long.Meta["sluice/next_offset"], any(float64(256<<10)))
	testkit.Equal(t, "stderr", read("sluice://logs/t/"+r.Process+"/stderr").Text, "trouble\n")
	log := read("sluice://logs/t/" + r.Process + "/stdout")
	if len(log.Text) > 257<<10 || !strings.HasSuffix(log.Text, "end\n") {
		t.Errorf("%d bytes of output that end with %q, want at most 257 KiB with the end", len(log.Text), log.Text[len(log.Text)-10:])
	}
	p, err := c.Process(a.ctx, "t", r.Process)
	testkit.Must(t, err)
	testkit.Must(t, p.DeleteOutput(a.ctx))
	testkit.Equal(t, "lost output is said", read("sluice://logs/t/" + r.Process + "/stdout").Meta["sluice/missing"], any(true))
	var lost ran
	a.call("read_output", args{"process": r.Process}, &lost)
	testkit.Equal(t, "lost output of each stream is said", []bool{lost.Stdout.Missing, lost.Stderr.Missing}, []bool{true, true})
	for _, uri := range []string{
		"sluice://files/t/../../etc/passwd", "sluice://files/t/%2e%2e/%2e%2e/etc/passwd", "sluice://files/t//etc/passwd", "sluice://files/t/none", "sluice://files/a%20b/x", "sluice://logs/t/p0000000000000000000000000/stdout",
		"sluice://logs/t/" + r.Process + "/stdin", "sluice://other/t/x", "file:///etc/passwd", "%%", "",
	} {
		if r, err := a.ReadResource(a.ctx, &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%q was read: %+v", uri, r.Contents[0])
		}
	}
	var templates []string
	for template, err := range a.ResourceTemplates(a.ctx, nil) {
		testkit.Must(t, err)
		templates = append(templates, template.URITemplate)
	}
	testkit.Equal(t, "templates", templates, []string{"sluice://files/{thread}/{+path}", "sluice://logs/{thread}/{process}/{stream}"})
}
