package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// The first command of a thread makes its session. CreateSession does so before, with what it should be like.
func ExampleClient_CreateSession() {
	c, done := example()
	defer done()
	ctx := context.Background()

	session, created, err := c.CreateSession(ctx, client.SessionRequest{
		Thread: "conversation-1", User: "ada", IdleTimeout: 10 * time.Minute, Tags: map[string]string{"purpose": "report"},
	})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	again, createdAgain, err := c.CreateSession(ctx, client.SessionRequest{Thread: "conversation-1"})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Println("created:", created, createdAgain)
	fmt.Println("the same session:", session.ID() == again.ID())
	// Output:
	// created: true false
	// the same session: true
}

// A handle is for one session: once that has ended, a command of the handle does not run in the next one.
func ExampleClient_Session() {
	c, done := example()
	defer done()
	ctx := context.Background()

	if _, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "true"}); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	session, err := c.Session(ctx, "conversation-1")
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	result, err := session.Exec(ctx, client.Request{Command: "echo", Args: []string{"in the session"}})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(result.Stdout)
	if _, err := session.Stop(ctx); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	_, err = session.Exec(ctx, client.Request{Command: "true"})
	fmt.Println("after its end:", errors.Is(err, schemas.ErrSessionExpired))
	// Output:
	// in the session
	// after its end: true
}

// StopSession ends the sandbox of a thread with all that runs in it. The workspace stays for the next session.
func ExampleClient_StopSession() {
	c, done := example()
	defer done()
	ctx := context.Background()

	if _, err := c.Files("conversation-1").WriteFile(ctx, "notes.txt", []byte("kept\n")); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	stopped, err := c.StopSession(ctx, "conversation-1")
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Println(stopped.Thread, "is", stopped.State)
	result, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "cat", Args: []string{"notes.txt"}})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Print(result.Stdout)
	// Output:
	// conversation-1 is terminated
	// kept
}
