package main

import (
	"net"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/schemas"
)

// tlsFlags say how a server protects what it sends and receives.
type tlsFlags struct {
	cert, key string
	insecure  bool
}

func (f *tlsFlags) addTo(c *cobra.Command) {
	c.Flags().StringVar(&f.cert, "tls-cert", "", "certificate `FILE` of the server, in PEM; with it, all clients need TLS")
	c.Flags().StringVar(&f.key, "tls-key", "", "key `FILE` of --tls-cert")
	c.Flags().BoolVar(&f.insecure, "insecure", false, "listen beyond loopback without TLS: the token and all data are readable on the way")
}

// check refuses an address that other machines reach, unless what they send is encrypted, or the user wants it in clear. Errors:
// invalid_argument.
func (f *tlsFlags) check(flag, listen string) error {
	if (f.cert == "") != (f.key == "") {
		return schemas.Errorf(schemas.CodeInvalidArgument, "--tls-cert and --tls-key belong together: set both, or none")
	}
	host, _, _ := net.SplitHostPort(listen) // the server reports an invalid address, and listens on loopback without a host
	a, _ := net.ResolveTCPAddr("tcp", listen)
	if host == "" || a == nil || a.IP.IsLoopback() || f.cert != "" || f.insecure {
		return nil
	}
	return schemas.Errorf(schemas.CodeInvalidArgument,
		"%s %s is beyond loopback, and the token and all data would cross the network in clear: add --tls-cert FILE and --tls-key FILE, or --insecure in a network that you trust", flag, listen)
}
