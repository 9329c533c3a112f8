package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// modeServer is the first argument that makes this program one of its servers; the second is a serverConfig.
const modeServer = "server"

// token is the servers' token.
const token = "chaos"

// serverConfig is a NATS server.
type serverConfig struct {
	Name, Dir     string
	Port, Cluster int   // ports; Cluster is 0 for a single server
	Routes        []int // the cluster's ports
}

// serve runs a server until it is ended. It prints a line when it accepts connections.
func serve(arg string) error {
	var c serverConfig
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: c.Name, Host: "127.0.0.1", Port: c.Port, Authorization: token, JetStream: true, StoreDir: c.Dir,
		JetStreamMaxStore: 16 << 30, NoSigs: true, MaxPayload: 1 << 20, LogFile: c.Dir + ".log", Logtime: true,
	}
	if c.Cluster != 0 {
		opts.Cluster = server.ClusterOpts{Name: "chaos", Host: "127.0.0.1", Port: c.Cluster}
		for _, port := range c.Routes {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
		}
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	ns.ConfigureLogger()
	ns.Start()
	if !ns.ReadyForConnections(30 * time.Second) {
		return errors.New("the server did not start")
	}
	fmt.Println(c.Name, "is up")
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGINT, unix.SIGTERM)
	<-ended
	ns.Shutdown()
	ns.WaitForShutdown()
	return nil
}
