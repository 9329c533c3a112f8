// Command testserver is a server that misbehaves on request. Tests run it in sandboxes.
//
//	testserver [--mode MODE] [--echo ADDRESS]… ADDRESS   an address is 127.0.0.1:PORT or the path of a unix socket
//	testserver server --host HOST --port PORT --no-token   as `sluice up` starts the program of SANDBOX_AGENT_BIN
//
// GET /health is answered as the mode says; POST /MODE changes the mode. The echo address returns every byte, and closes for writing when
// its client has.
package main
