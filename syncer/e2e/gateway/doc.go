// Package gateway starts the versitygw S3 server for tests and measurements, in a process of its own: it changes its
// process's working folder, only one of it can run in a process, and its CPU time is not to be counted as the client's.
//
//	Main (in TestMain, in main) ── re-executed with SLUICE_GATEWAY_DIR ──► versitygw on a loopback port
//	Start ── starts that process, waits for its port ──► Server{Endpoint, credentials}
package gateway
