// Package gateway starts the versitygw S3 server for tests and measurements in a child process: the server changes its
// process's working folder, a process can run only one, and its CPU time must not count as the client's.
//
//	Main (in TestMain, in main) ── executed again with SLUICE_GATEWAY_DIR ──► versitygw on a loopback port
//	Start ── starts that process, waits for its port ──► Server{Endpoint, credentials}
package gateway
