package client_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// A process with a terminal has a size, and prints what is typed.
func ExampleClient_ExecStream_terminal() {
	c, done := example()
	defer done()
	ctx := context.Background()

	run, err := c.ExecStream(ctx, client.Request{
		Thread: "conversation-1", Command: "sh", Args: []string{"-c", `stty size; read name; echo "hello $name"`},
		Terminal: &schemas.TerminalSize{Rows: 24, Cols: 80}, Stdin: strings.NewReader("ada\n"),
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer run.Close()
	lines := 0
	for event, err := range run.Events(ctx) {
		switch {
		case err != nil:
			fmt.Println("Sluice failed:", err)
		case event.Result != nil:
			fmt.Println("lines:", lines, "exit code:", event.Result.ExitCode)
		case event.Chunk != nil:
			lines += strings.Count(string(event.Chunk.Data), "\n") // the size, what was typed, the answer
		}
	}
	// Output:
	// lines: 3 exit code: 0
}

// Several programs join one terminal: each gets all output, the last screenful first, and can type.
func ExampleClient_AttachProcess() {
	c, done := example()
	defer done()
	ctx := context.Background()
	size := schemas.TerminalSize{Rows: 24, Cols: 80}

	process, err := c.StartProcess(ctx, client.Request{
		Thread: "conversation-1", Command: "sh", Args: []string{"-c", `echo "who is there?"; read name; echo "hello $name"`}, Terminal: &size,
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	attached, err := c.AttachProcess(ctx, client.AttachRequest{Process: process.ID(), Size: size})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer attached.Close()
	_, err = attached.Output(ctx, func(k schemas.Chunk) error {
		text := strings.ReplaceAll(string(k.Data), "\r", "")
		fmt.Print(text)
		if strings.HasPrefix(text, "who") {
			attached.Input(ctx, strings.NewReader("ada\n"))
		}
		return nil
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
	}
	// Output:
	// who is there?
	// ada
	// hello ada
}
