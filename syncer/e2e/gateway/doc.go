// Package gateway starts S3 servers for tests and measurements in child processes: versitygw changes its process's working folder,
// a process can run only one, and its CPU time must not count as the client's.
//
//	Main (in TestMain, in main) ── executed again with SLUICE_GATEWAY_DIR ──► versitygw or rclone serve s3 on a loopback port
//	Start ── starts that process, waits for its port ──► Server{Endpoint, credentials}
package gateway
