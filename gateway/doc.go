// Package gateway serves the HTTP APIs. It is built on the SDK alone and holds no state: any gateway of a cell answers any request.
//
//	request ─► Host, Origin ─► token ─► route ─► client.Client of the token's tenant ─► worker
//	                                      │
//	                                      ├─ session API    /create_session … /health
//	                                      └─ Config.Mounts  such as /mcp
//
// Input comes from the network: headers, bodies and their time are bounded before they are read, and nothing is held whole but JSON.
package gateway
