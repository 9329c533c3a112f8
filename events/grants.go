package events

// Grant is a subject that clients of a tenant use, and what it is in the account of the tenant's workers.
type Grant struct{ Subject, Worker string }

// Grants are the subjects that the clients of one tenant use on NATS. Everything else is for workers.
type Grants struct {
	// Direct is sent to the owner of a thread, which answers on the inbox that a header names. On the reply subject comes only the server's
	// notice that there is no owner, at once.
	Direct []Grant
	// Commands are sent to workers and to CMD. Each has one answer on its reply subject, which may take as long as a sandbox takes to start.
	Commands []Grant
	// Requests are reads of streams and buckets, and descriptions of them. Batches have many answers.
	Requests, Batches []Grant
	// Copies are what clients subscribe to and workers publish: live events, output and messages, forwarded connections, and the inboxes of the
	// tenant.
	Copies []Grant
	// Tokens are written by a gateway, for the tokens of HTTP.
	Tokens []Grant
}

// NewGrants returns the grants of a tenant in a cell. Both must be valid ids.
func NewGrants(cell, tenant string) (g Grants) {
	s, n := NewSubjects(cell), namesOf(cell)
	same := func(subjects ...string) (grants []Grant) {
		for _, subject := range subjects {
			grants = append(grants, Grant{subject, subject})
		}
		return grants
	}
	g.Direct = same(s.RPC(tenant, "*", "*"), s.Tunnel(tenant, "*", "*", tunnelUp))
	g.Commands = same(s.Command(tenant, "*", "*"), s.Control(tenant, "*", "*", "*"), s.API(tenant, ">"))
	g.Copies = same(s.join(tenant, "feed", ">"), s.join(tenant, "tail", ">"), s.join(tenant, "said", ">"), s.Tunnel(tenant, "*", "*", tunnelDown), InboxOf(tenant)+".>")
	clients, workers := &streamReader{api: Options{Domain: AccountOf(tenant)}.apiPrefix()}, &streamReader{api: Options{}.apiPrefix()}
	for _, stream := range []string{n.cmd, n.evt, n.log, n.msg, n.dlq, kvStream(n.state), kvStream(n.leases)} {
		g.Requests = append(g.Requests, Grant{clients.infoSubject(stream), workers.infoSubject(stream)})
		if stream == n.cmd {
			continue // only workers read the commands that wait
		}
		g.Requests = append(g.Requests, Grant{clients.getSubject(stream), workers.getSubject(stream)})
		direct := Grant{clients.directSubject(stream), workers.directSubject(stream)}
		g.Batches = append(g.Batches, direct, Grant{direct.Subject + ".>", direct.Worker + ".>"})
	}
	tokens := tokenPrefix + "*"
	g.Tokens = []Grant{{clients.kvWriteSubject(n.state, tokens), workers.kvWriteSubject(n.state, tokens)}}
	return g
}

// AccountOf is the account with the streams and the workers of a tenant. The clients are in another account, which reaches JetStream in this
// one under its name, as if it were a domain: below $JS.API every account has its own.
func AccountOf(tenant string) string { return "SLUICE_" + tenant }

// InboxOf is what the inboxes of a tenant begin with. Only such inboxes cross from the account of the workers into that of the clients.
func InboxOf(tenant string) string { return inboxPrefix + "_" + tenant }
