package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// Standard input is a stream: it is copied until it ends, or the process does.
func ExampleClient_Exec_stdin() {
	c, done := example()
	defer done()

	result, err := c.Exec(context.Background(), client.Request{
		Thread: "conversation-1", Command: "sort", Stdin: strings.NewReader("pear\napple\n"),
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(result.Stdout)
	// Output:
	// apple
	// pear
}

// A timeout ends the command with all that it started, and is a result. The output up to then is kept.
func ExampleClient_Exec_timeout() {
	c, done := example()
	defer done()

	result, err := c.Exec(context.Background(), client.Request{
		Thread: "conversation-1", Command: "sh", Args: []string{"-c", "echo before; sleep 300 & sleep 300"}, Timeout: time.Second,
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(result.Stdout)
	fmt.Println(result.Reason, "with exit code", result.ExitCode)
	// Output:
	// before
	// timed_out with exit code 124
}

// OnOutput gets each piece of output while Exec waits.
func ExampleClient_Exec_callbacks() {
	c, done := example()
	defer done()

	_, err := c.Exec(context.Background(), client.Request{
		Thread: "conversation-1", Command: "seq", Args: []string{"3"},
		OnOutput:   func(k schemas.Chunk) { fmt.Print(string(k.Data)) },
		OnComplete: func(r *schemas.Result) { fmt.Println("exit code", r.ExitCode) },
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
	}
	// Output:
	// 1
	// 2
	// 3
	// exit code 0
}

// A process in the background goes on without its caller. Its key is a name: another program finds it by that.
func ExampleClient_StartProcess() {
	c, done := example()
	defer done()
	ctx := context.Background()

	started, err := c.StartProcess(ctx, client.Request{
		Thread: "conversation-1", Key: "build", Command: "sh", Args: []string{"-c", "echo built; exit 3"},
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer started.Close()

	process, err := c.Process(ctx, "conversation-1", c.ProcessID("conversation-1", "build"))
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	result, err := process.Wait(ctx)
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Printf("%sexit code %d\n", result.Stdout, result.ExitCode)
	// Output:
	// built
	// exit code 3
}

// A process with an open standard input is written to piece by piece.
func ExampleProcess_WriteStdin() {
	c, done := example()
	defer done()
	ctx := context.Background()

	process, err := c.StartProcess(ctx, client.Request{Thread: "conversation-1", Command: "sh", StdinOpen: true})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer process.Close()
	for _, line := range []string{"name=world\n", "echo hello $name\n"} {
		if err := process.WriteStdin(ctx, []byte(line)); err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
	}
	if err := process.CloseStdin(ctx); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	result, err := process.Wait(ctx)
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(result.Stdout)
	// Output:
	// hello world
}

// The output of one process is the input of another, also after a kill of their worker.
func ExampleClient_StartProcess_pipe() {
	c, done := example()
	defer done()
	ctx := context.Background()

	words, err := c.StartProcess(ctx, client.Request{Thread: "conversation-1", Command: "printf", Args: []string{`b\na\n`}})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	sorted, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "sort", StdinFrom: words.ID()})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(sorted.Stdout)
	// Output:
	// a
	// b
}

// A signal reaches the process and its children, which may handle it.
func ExampleExecution_Signal() {
	c, done := example()
	defer done()
	ctx := context.Background()

	run, err := c.ExecStream(ctx, client.Request{
		Thread: "conversation-1", Command: "sh", Args: []string{"-c", `trap "echo stopping; exit 5" TERM; echo ready; sleep 300 & wait`},
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer run.Close()
	for event, err := range run.Events(ctx) {
		switch {
		case err != nil:
			fmt.Println("Sluice failed:", err)
		case event.Result != nil:
			fmt.Println("exit code", event.Result.ExitCode)
		case event.Chunk != nil:
			fmt.Print(string(event.Chunk.Data))
			if strings.HasPrefix(string(event.Chunk.Data), "ready") {
				_ = run.Signal(ctx, "SIGTERM") // not_found when it has ended
			}
		}
	}
	// Output:
	// ready
	// stopping
	// exit code 5
}

// Kill ends a process with all that it started: SIGTERM, and after the grace SIGKILL.
func ExampleProcess_Kill() {
	c, done := example()
	defer done()
	ctx := context.Background()

	process, err := c.StartProcess(ctx, client.Request{Thread: "conversation-1", Command: "sh", Args: []string{"-c", "echo ready; exec sleep 300"}})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	for _, err := range c.LogChunks(ctx, client.LogQuery{Process: process.ID(), Follow: true}) {
		if err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
		break // it runs: one that has not started yet is killed without the grace
	}
	if err := process.Kill(ctx, 5*time.Second); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	result, err := process.Wait(ctx)
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Println(result.Reason, "with exit code", result.ExitCode)
	// Output:
	// killed with exit code 143
}

// Processes lists what runs, and with All what has ended too, the newest first.
func ExampleClient_Processes() {
	c, done := example()
	defer done()
	ctx := context.Background()

	if _, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "false"}); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	if _, err := c.StartProcess(ctx, client.Request{Thread: "conversation-1", Command: "sleep", Args: []string{"300"}}); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	list, err := c.Processes(ctx, client.ProcessQuery{Thread: "conversation-1", All: true})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	for _, p := range list {
		fmt.Println(p.Command, p.Args, "has ended:", p.ExitCode != nil)
	}
	// Output:
	// sleep [300] has ended: false
	// false [] has ended: true
}

// LogChunks is the stored output as an iterator. With Follow it goes on with what the process prints, until its end.
func ExampleClient_LogChunks() {
	c, done := example()
	defer done()
	ctx := context.Background()

	process, err := c.StartProcess(ctx, client.Request{Thread: "conversation-1", Command: "sh", Args: []string{"-c", "echo out; sleep 0.2; echo err >&2"}})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	for chunk, err := range c.LogChunks(ctx, client.LogQuery{Process: process.ID(), Follow: true}) {
		if err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
		fmt.Printf("%s: %s", chunk.Stream, chunk.Data)
	}
	// Output:
	// stdout: out
	// stderr: err
}

// Events has what happened to a process, a session or all of them, in order: stored, and with Follow as it happens.
func ExampleClient_Events() {
	c, done := example()
	defer done()
	ctx := context.Background()

	result, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "true"})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	stop := errors.New("stop")
	err = c.Events(ctx, client.EventQuery{Process: result.Process, Follow: true}, func(ev *schemas.Event) error {
		fmt.Println(ev.Type)
		if ev.Type.Terminal() {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		fmt.Println("Sluice failed:", err)
	}
	// Output:
	// process.accepted
	// process.started
	// process.exited
}
