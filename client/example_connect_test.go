package client_test

import (
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/client"
)

// A program connects once, and shares the client.
func ExampleConnect() {
	c, err := client.Connect("nats://127.0.0.1:4222", client.WithToken(os.Getenv("SLUICE_NATS_TOKEN")), client.WithTenant("default"))
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	defer c.Close()
}
