package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/processor/answer"
	"github.com/sluice-dev/sluice/schemas"
)

// The agent of the thread's template answers, and its answer arrives as it is printed. The reader drops the lines that are for
// programs, and adds up the usage that they report.
func ExampleClient_MessageStream() {
	c, done := example()
	defer done()
	ctx := context.Background()

	run, err := c.MessageStream(ctx, client.Prompt{Thread: "conversation-1", Template: "echo-agent", Text: "hello there"})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer run.Close()
	out := answer.NewReader(os.Stdout, "")
	for event, err := range run.Events(ctx) {
		switch {
		case err != nil:
			fmt.Println("Sluice failed:", err)
		case event.Result != nil:
			fmt.Println("exit code", event.Result.ExitCode)
		case event.Chunk.Stream == schemas.Stdout:
			_, _ = out.Write(event.Chunk.Data) // its error is that of os.Stdout
		}
	}
	_ = out.Close() // the same
	usage, _ := out.Usage()
	fmt.Println(usage.InputTokens, "tokens in,", usage.OutputTokens, "out")
	// Output:
	// (1) hello there
	// exit code 0
	// 2 tokens in, 3 out
}

// The agent of the thread's template answers a message. Its answer is a result, as a command's is.
func ExampleClient_Message() {
	c, done := example()
	defer done()

	result, err := c.Message(context.Background(), client.Prompt{Thread: "conversation-1", Template: "echo-agent", Text: "hello there"})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Println(strings.SplitN(result.Stdout, "\n", 2)[0])
	// Output:
	// (1) hello there
}

// The history of a conversation is stored in order and can be followed. An answer is stored shortly after its result.
func ExampleClient_Messages() {
	c, done := example()
	defer done()
	ctx := context.Background()

	if _, err := c.Message(ctx, client.Prompt{Thread: "conversation-1", Template: "echo-agent", Text: "hello", User: "ada"}); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	stop := errors.New("stop")
	err := c.Messages(ctx, client.MessageQuery{Thread: "conversation-1", Follow: true}, func(m *schemas.Message) error {
		fmt.Printf("%s %s: %s\n", m.Role, m.User, m.Text)
		if m.Role == schemas.RoleAgent {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		fmt.Println("Sluice failed:", err)
	}
	// Output:
	// user ada: hello
	// agent ada: (1) hello
}
