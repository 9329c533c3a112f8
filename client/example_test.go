package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// A command runs in the sandbox of its thread. A non-zero exit is a result, not an error.
func ExampleClient_Exec() {
	c, done := example()
	defer done()
	ctx := context.Background()

	result, err := c.Exec(ctx, client.Request{
		Thread: "conversation-1", Command: "sh", Args: []string{"-c", "echo working; echo trouble >&2; exit 3"}, Timeout: time.Minute,
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Printf("exit code %d, reason %s\n", result.ExitCode, result.Reason)
	fmt.Printf("stdout: %sstderr: %s", result.Stdout, result.Stderr)
	// Output:
	// exit code 3, reason exited
	// stdout: working
	// stderr: trouble
}

// Output arrives as it is printed, and the result last.
func ExampleClient_ExecStream() {
	c, done := example()
	defer done()
	ctx := context.Background()

	run, err := c.ExecStream(ctx, client.Request{Thread: "conversation-1", Command: "seq", Args: []string{"1", "3"}})
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
		}
	}
	// Output:
	// 1
	// 2
	// 3
	// exit code 0
}

// The whole output is stored. Read it by the id of the process, while it runs or later.
func ExampleClient_Logs() {
	c, done := example()
	defer done()
	ctx := context.Background()

	result, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "echo", Args: []string{"kept"}})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	err = c.Logs(ctx, client.LogQuery{Process: result.Process}, func(chunk schemas.Chunk) error {
		fmt.Printf("%s at %d: %s", chunk.Stream, chunk.Offset, chunk.Data)
		return nil
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
	}
	// Output:
	// stdout at 0: kept
}

// A command with the same key runs once and returns the same result each time. Another command with that key is a conflict.
func ExampleClient_Exec_idempotencyKey() {
	c, done := example()
	defer done()
	ctx := context.Background()

	request := client.Request{Thread: "conversation-1", Key: "invoice-42", Command: "sh", Args: []string{"-c", "echo ran >>ran; wc -l <ran"}}
	for range 2 {
		result, err := c.Exec(ctx, request)
		if err != nil {
			fmt.Println("Sluice failed:", err)
			return
		}
		fmt.Print("runs so far: ", result.Stdout)
	}
	request.Args = []string{"-c", "echo something else"}
	_, err := c.Exec(ctx, request)
	fmt.Println("another command:", errors.Is(err, schemas.ErrConflict))
	// Output:
	// runs so far: 1
	// runs so far: 1
	// another command: true
}
