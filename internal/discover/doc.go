// Package discover finds the server of this machine's user: the rules that the command line and the Go SDK have in common.
//
//	SLUICE_NATS_URL, with _CREDS, _TOKEN and _CA     ──► that server
//	otherwise the data folder: server.json and token ──► the process that holds it, such as `sluice up`
package discover
