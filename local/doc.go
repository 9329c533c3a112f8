// Package local runs Sluice inside a program: a NATS server, a worker and a client of them. Its client is that of a remote server.
//
//	local.Open ─────► *client.Client ──in process──► NATS server ◄── worker ──► jails, containers or local processes
//	client.Connect ─► *client.Client ──TCP─────────► another one
package local
