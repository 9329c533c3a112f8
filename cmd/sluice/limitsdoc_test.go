package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

const docs = "../../docs"

func doc(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(docs, name))
	testkit.Must(t, err)
	return string(body)
}

// Ten minutes 16: the table of limits has the defaults of the code.
func TestLimitsAreDocumented(t *testing.T) {
	text := doc(t, "limits.md")
	want := func(name, value string) {
		t.Helper()
		if !strings.Contains(text, "\n| "+name+" | "+value+" |") {
			t.Errorf("docs/limits.md: want a row | %s | %s |", name, value)
		}
	}
	streams := events.Topology{}.WithDefaults()
	for name, n := range map[string]int64{
		"size of CMD, the queue": streams.CommandBytes, "size of EVT, the records": streams.EventBytes, "size of LOG, the output": streams.LogBytes,
		"output of one process in LOG": streams.LogProcessBytes, "output of one tenant in LOG": streams.LogTenantBytes,
		"size of MSG, the messages": streams.MessageBytes, "size of DLQ, the dead letters": streams.DeadBytes,
		"command, encoded": schemas.MaxCommandBytes, "control request, encoded": schemas.MaxControlBytes,
		"thread, session, process, tenant or template id": schemas.MaxIDLength, "key": schemas.MaxKeyBytes,
		"path of a command or folder": schemas.MaxPathBytes, "image name": schemas.MaxImageBytes, "prompt, and text of a message": schemas.MaxPromptBytes,
		"user": schemas.MaxUserBytes, "name or value of a tag": schemas.MaxTagBytes,
		"name of a label": schemas.MaxLabelName, "value of a label": schemas.MaxLabelBytes, "trace state": schemas.MaxTraceState,
		"output of each stream in a result, by default": schemas.DefaultOutputLimit, "output of each stream in a result, at most": schemas.MaxOutputLimit,
		"output of each stream in a record": schemas.MaxRecordOutput,
	} {
		want(name, binary(n))
	}
	want("piece of standard input, or of the content of a file", binary(schemas.MaxFilePiece))
	want("pieces of a file under way", strconv.Itoa(schemas.MaxFileWindow))
	want("entries of a folder, or results of a search, in one reply", thousands(schemas.MaxFileEntries))
	want("versions, and changes, in one reply", thousands(max(schemas.MaxVersions, schemas.MaxChanges)))
	want("file that `session diff` compares line by line", binary(schemas.MaxDiffBytes))
	want("CPUs of a sandbox", thousands(schemas.MaxCPUs))
	want("processes and threads of a sandbox", thousands(schemas.MaxPIDs))
	want("least memory of a sandbox", binary(schemas.MinMemoryBytes))
	want("output of a process that waits in its sandbox while NATS is away", binary(wire.Window)+" of each stream")
	want("tags of a session", strconv.Itoa(schemas.MaxTags))
	want("labels of a command", strconv.Itoa(schemas.MaxLabels))
	limits, err := sandbox.Limits{}.WithDefaults()
	testkit.Must(t, err)
	want("memory, with /tmp and /dev/shm", binary(limits.MemoryBytes))
	want("CPUs", fmt.Sprint(limits.CPUs))
	want("processes and threads", fmt.Sprint(limits.PIDs))
	want("open files of a process", thousands(limits.OpenFiles))
	want("size of /tmp", binary(limits.TmpBytes))
	want("size of a workspace, by the blocks that it takes", decimal(limits.WorkspaceBytes))
	want("files and folders of a workspace", thousands(limits.WorkspaceFiles))
	want("size of a file", decimal(limits.FileBytes))
	for name, d := range map[string]time.Duration{
		"age in CMD": streams.CommandAge, "age in EVT": streams.EventAge, "age in LOG": streams.LogAge, "timeout of a hook": time.Duration(schemas.MaxHookTimeoutMS) * time.Millisecond,
	} {
		want(name, fmt.Sprintf("%.0f h", d.Hours()))
	}
	want("timeout, grace or lifetime", fmt.Sprintf("%.0f d", (time.Duration(schemas.MaxTimeoutMS)*time.Millisecond).Hours()/24))
	token := schemas.DefaultTokenLimits()
	want("requests per second", fmt.Sprint(token.Rate))
	for name, n := range map[string]int64{
		"requests at once before that": token.Bursts(), "requests and streams at a time": token.Concurrent,
		"sessions of the tenant": token.Sessions, "processes of the tenant": token.Processes,
	} {
		want(name, fmt.Sprint(n))
	}
	want("bytes up and down in an hour", decimal(token.BytesPerHour))
	m := &Main{Getenv: func(string) string { return "" }}
	pools := map[string]string{}
	every(m.rootCommand(), nil, func(c *cobra.Command, path []string) {
		name := strings.Join(path, " ")
		if pool := c.Flag("pool"); pool != nil {
			pools[name] = pool.DefValue
		}
		if name != "worker" {
			return
		}
		want("processes at once", c.Flag("max-processes").DefValue)
		want("processes of one tenant", "224, of a tenant that is alone")
		want("processes of one thread", "196, of a thread that is alone")
		for _, what := range []string{"sessions", "sandboxes"} {
			count, _ := strconv.ParseInt(c.Flag("max-"+what).DefValue, 10, 64)
			want(what+" at once", thousands(count))
			want(what+" of one tenant", thousands(count/8*7)+", of a tenant that is alone")
		}
		want("time without an answer after which a worker's threads pass to others", strings.Replace(c.Flag("lease").DefValue, "s", " s", 1))
		want("time that a workspace is kept after its session", strings.Replace(c.Flag("keep-workspaces").DefValue, "h0m0s", " h", 1))
		want("time between SIGTERM and SIGKILL at shutdown", strings.Replace(c.Flag("grace").DefValue, "s", " s", 1))
		want("time without a process before a session ends", strings.Replace(c.Flag("idle-timeout").DefValue, "m0s", " min", 1))
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(text, -1) {
			if c.Flag(flag[1]) == nil {
				t.Errorf("docs/limits.md: worker has no flag --%s", flag[1])
			}
		}
	})
	want("sandboxes kept ready", pools["worker"]+", and "+pools["up"]+" of `sluice up`")
}

// binary is a size as the table has it: 768 KiB, 2 GiB.
func binary(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprint(n/u.size, " ", u.name)
		}
	}
	return fmt.Sprint(n, " B")
}

// decimal is a size in MB or GB.
func decimal(n int64) string {
	if n%1_000_000_000 == 0 {
		return fmt.Sprint(n/1_000_000_000, " GB")
	}
	return fmt.Sprint(n/1_000_000, " MB")
}

// thousands is a number with commas: 1,000.
func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
