package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// A service is a process that its worker supervises. Start returns once it is healthy: here, once its program has made a file.
func ExampleServices_Start() {
	c, done := example()
	defer done()
	ctx := context.Background()

	services := c.Services("conversation-1")
	service, err := services.Start(ctx, client.ServiceRequest{Name: "worker", ServiceSpec: schemas.ServiceSpec{
		Command: "sh", Args: []string{"-c", "echo up; touch ready; exec sleep 300"},
		Health: &schemas.HealthCheck{Command: []string{"test", "-e", "ready"}},
	}})
	if err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Println(service.Name, "is", service.State)
	if service, err = services.Stop(ctx, "worker"); err != nil {
		fmt.Println("Sluice failed:", err)
		return
	}
	fmt.Println(service.Name, "is", service.State)
	// Output:
	// worker is running
	// worker is stopped
}

// Connections to a listener here reach a port in the sandbox, which needs no network for it. In this example the sandbox is of the provider
// local, and so a server here stands for one inside.
func ExampleClient_ForwardAll() {
	c, done := example()
	defer done()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from the sandbox") }))
	defer inside.Close()
	port := inside.Listener.Addr().(*net.TCPAddr).Port

	if _, err := c.Exec(ctx, client.Request{Thread: "conversation-1", Command: "true"}); err != nil { // the sandbox has to run
		fmt.Println("Sluice failed:", err)
		return
	}
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.ForwardAll(ctx, here, "conversation-1", port, func(err error) { fmt.Println("a connection failed:", err) })
	}()
	response, err := http.Get("http://" + here.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	fmt.Print(string(body))
	stop()
	if err := <-ended; err != nil {
		fmt.Println("Sluice failed:", err)
	}
	// Output:
	// hello from the sandbox
}
