package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// progressEvery is the time between two notifications. They also keep a connection, and the patience of a caller, alive.
const progressEvery = time.Second

// watch sends notifications with the status, the first at once, until stop is called. It sends none to a caller that has not asked. Their progress
// is the time in seconds.
func watch(ctx context.Context, req *sdk.CallToolRequest, status func() string) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for begun := time.Now(); ; {
			// A caller that has left ends ctx.
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: time.Since(begun).Seconds(), Message: status()})
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
