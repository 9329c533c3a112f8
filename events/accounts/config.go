package accounts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/events"
)

// How long the server keeps the way back of an answer between the accounts, unless it has come: it holds memory for each. A sandbox may take
// ten minutes to start.
const directAnswer, commandAnswer, readAnswer = "10s", "15m", "1m"

// Limits of JetStream that are the same for all tenants. Sluice has seven streams, and clients use no consumers.
const maxStreams, maxConsumers = 16, 256

const configHead = `# The accounts of Sluice's tenants. "sluice tenant" writes this file: changes made by hand are lost.
# It has public keys only. Include it in the server's configuration, and reload the server after each change.

accounts {
`

// render returns the configuration of the tenants. It quotes names: the server would read one of digits alone as a number.
func render(tenants []Tenant) string {
	var b strings.Builder
	b.WriteString(configHead)
	for i := range tenants {
		renderTenant(&b, &tenants[i])
	}
	b.WriteString("}\n")
	return b.String()
}

func renderTenant(b *strings.Builder, t *Tenant) {
	g := events.NewGrants(t.Cell, t.Name)
	workers, clients := strconv.Quote(events.AccountOf(t.Name)), strconv.Quote("CLIENTS_"+t.Name)
	fmt.Fprintf(b, "  # Tenant %s, cell %s: the workers, and the streams.\n  %s {\n", t.Name, t.Cell, workers)
	fmt.Fprintf(b, "    jetstream {max_memory: 0, max_file: %d, max_streams: %d, max_consumers: %d}\n", t.MaxStorage, maxStreams, maxConsumers)
	fmt.Fprintf(b, "    limits {max_connections: %d}\n    users [\n      {nkey: %q}\n    ]\n    exports [\n", t.MaxConnections, t.Keys[Worker])
	export := func(grants []events.Grant, to, more string) {
		for _, s := range grants {
			fmt.Fprintf(b, "      {service: %q, accounts: [%s]%s}\n", s.Worker, to, more)
		}
	}
	export(g.Direct, clients, `, threshold: "`+directAnswer+`"`)
	export(g.Commands, clients, `, threshold: "`+commandAnswer+`"`)
	export(slices.Concat(g.Requests, g.Tokens), clients, `, threshold: "`+readAnswer+`"`)
	export(g.Batches, clients, `, response: "stream", threshold: "`+readAnswer+`"`)
	// A stream that the clients import would end the server: see docs/adr/0057-a-tenant-has-two-accounts.md.
	b.WriteString("    ]\n    imports [\n")
	for _, s := range g.Copies {
		fmt.Fprintf(b, "      {service: {account: %s, subject: %q}}\n", clients, s.Subject)
	}
	fmt.Fprintf(b, "    ]\n  }\n  # Tenant %s: its clients and gateways, and all that they reach.\n  %s {\n", t.Name, clients)
	fmt.Fprintf(b, "    limits {max_connections: %d}\n    users [\n", t.MaxConnections)
	publish := slices.Concat(g.Direct, g.Commands, g.Requests, g.Batches)
	renderUser(b, t.Keys[Client], publish, g.Copies)
	renderUser(b, t.Keys[Gateway], slices.Concat(publish, g.Tokens), g.Copies)
	b.WriteString("    ]\n    exports [\n")
	export(g.Copies, workers, "")
	b.WriteString("    ]\n    imports [\n")
	for _, s := range slices.Concat(publish, g.Tokens) {
		fmt.Fprintf(b, "      {service: {account: %s, subject: %q}, to: %q}\n", workers, s.Worker, s.Subject)
	}
	b.WriteString("    ]\n  }\n")
}

func renderUser(b *strings.Builder, key string, publish, subscribe []events.Grant) {
	fmt.Fprintf(b, "      {nkey: %q, permissions: {\n        publish: {allow: [%s]}\n        subscribe: {allow: [%s]}\n      }}\n",
		key, quoted(publish), quoted(subscribe))
}

func quoted(grants []events.Grant) string {
	all := make([]string, len(grants))
	for i, s := range grants {
		all[i] = strconv.Quote(s.Subject)
	}
	return strings.Join(all, ", ")
}
