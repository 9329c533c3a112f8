package local_test

import (
	"context"
	"fmt"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/local"
	"github.com/sluice-dev/sluice/schemas"
)

func ExampleOpen() {
	ctx := context.Background()
	c, err := local.Open(ctx, local.Config{Provider: schemas.ProviderLocal}) // isolates nothing; the default isolates
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "echo", Args: []string{"hello"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(r.Stdout)
	// Output:
	// hello
}
