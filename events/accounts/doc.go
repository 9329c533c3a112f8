// Package accounts writes the part of a NATS server's configuration that separates tenants. It is separate from package events, so that a
// program that only connects to a server does not link one.
//
// Each tenant has two accounts. Only what they import from each other crosses between them, and nothing crosses between tenants:
//
//	CLIENTS_<tenant>                      SLUICE_<tenant>
//	 client, gateway ──commands, reads──► worker, streams, buckets
//	                 ◄──answers, copies──
//
// With one account, a client could name any subject as the reply of a request to JetStream, which answers with rights of its own: it could
// write records and leases. Answers to an imported service arrive in the account of the request.
//
// [Folder] is a folder of three things: tenants.json has the tenants and the public keys of their users, accounts.conf is made from it for
// the server to include, and creds has a file with the seed of each user's nkey. Only the last are secret.
package accounts
