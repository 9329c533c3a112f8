// Command moderate answers the moderation hook of the writer: it refuses a prompt that contains "forbidden". It uses the packages of NATS
// alone.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
)

// hookData is the part of a hook's data that it needs; see schemas/json/hook-data.json.
type hookData struct {
	Message struct {
		Text string `json:"text"`
	} `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "moderate:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	nc, err := nats.Connect(os.Getenv("SLUICE_NATS_URL"), nats.Token(os.Getenv("SLUICE_NATS_TOKEN")), nats.Name("moderate"))
	if err != nil {
		return err
	}
	defer nc.Close()
	// A queue group: any number of these programs share the work.
	_, err = nc.QueueSubscribe("acme.moderation", "moderators", func(m *nats.Msg) {
		var data hookData
		reply := `{"code": "invalid_argument", "message": "no hook data"}`
		switch err := json.Unmarshal(m.Data, &data); {
		case err != nil:
		case strings.Contains(data.Message.Text, "forbidden"):
			reply = `{"code": "policy_denied", "message": "the prompt is forbidden here"}`
		default:
			reply = ""
		}
		_ = m.Respond([]byte(reply)) // without a reply the hook fails by its timeout
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}
