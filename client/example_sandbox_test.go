package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// count counts the words of a file in a sandbox of its own.
func count(ctx context.Context, c *client.Client) (words string, err error) {
	box, err := client.Run(ctx, c, client.SessionRequest{Tags: map[string]string{"job": "count"}, IdleTimeout: 10 * time.Minute})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, box.Close()) }() // stops it, and hides no error
	if _, err := box.Files().WriteFile(ctx, "data.txt", []byte("one two\n")); err != nil {
		return "", err
	}
	r, err := box.Exec(ctx, client.Request{Command: "wc", Args: []string{"-w", "data.txt"}})
	if err != nil {
		return "", err
	}
	return r.Stdout, nil
}

func ExampleRun() {
	c, done := example()
	defer done()
	words, err := count(context.Background(), c)
	fmt.Println(words, err)
	// Output:
	// 2 data.txt
	//  <nil>
}

// pair makes two sandboxes, and uses one.
func pair(ctx context.Context, c *client.Client) (err error) {
	boxes := c.Sandboxes(client.SessionRequest{User: "ann", Tags: map[string]string{"job": "7"}})
	defer func() { err = errors.Join(err, boxes.Close()) }()
	idle := boxes.Sandbox(client.SessionRequest{Thread: "left"}) // makes no request before its first use
	used := boxes.Sandbox(client.SessionRequest{Thread: "right"})
	if err := used.Wait(ctx); err != nil {
		return err
	}
	fmt.Printf("%q %q\n", idle.Status(), used.Status())
	list, err := boxes.List(ctx, client.SessionQuery{})
	for _, box := range list {
		fmt.Println(box.Thread(), box.Status())
	}
	return err
}

func ExampleClient_Sandboxes() {
	c, done := example()
	defer done()
	fmt.Println(pair(context.Background(), c))
	// Output:
	// "" "running"
	// right running
	// <nil>
}

func ExampleWait() {
	c, done := example()
	defer done()
	ctx := context.Background()

	boxes := c.Sandboxes(client.SessionRequest{})
	first, second := boxes.Sandbox(client.SessionRequest{}), boxes.Sandbox(client.SessionRequest{Template: "none"})
	ready, pending := client.Wait(ctx, 0, first, second)
	fmt.Println(len(ready), "done,", len(pending), "pending")
	fmt.Println("the first:", first.Wait(ctx))
	fmt.Println("the second:", schemas.CodeOf(second.Wait(ctx)))
	fmt.Println("closed:", boxes.Close())
	// Output:
	// 2 done, 0 pending
	// the first: <nil>
	// the second: not_found
	// closed: <nil>
}

func ExampleSandbox_Stop() {
	c, done := example()
	defer done()
	ctx := context.Background()

	box, err := client.Run(ctx, c, client.SessionRequest{Thread: "conversation-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	same, err := client.Attach(ctx, c, "conversation-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := box.Stop(ctx, client.StopGrace(time.Second)); err != nil {
		fmt.Println(err)
		return
	}
	_, err = box.Exec(ctx, client.Request{Command: "true"})
	fmt.Println(errors.Is(err, client.ErrSandboxNotRunning), schemas.CodeOf(err))
	_, err = same.Exec(ctx, client.Request{Command: "true"})
	fmt.Println(errors.Is(err, client.ErrSandboxTerminated), schemas.CodeOf(err))
	// Output:
	// true session_expired
	// true session_expired
}

func ExampleWithMain() {
	c, done := example()
	defer done()
	ctx := context.Background()

	work := client.Request{Command: "sh", Args: []string{"-c", "echo done; exit 3"}}
	box, err := client.Run(ctx, c, client.SessionRequest{}, client.WithMain(work))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := box.WaitUntilComplete(ctx, time.Minute); err != nil {
		fmt.Println(err)
		return
	}
	code, _ := box.ExitCode()
	fmt.Println(box.Status(), "with exit code", code)
	// Output:
	// completed with exit code 3
}
