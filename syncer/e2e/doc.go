// Package e2e runs the syncer against a real S3 server, versitygw, and against rclone. It is a module of its own, so
// that neither weighs on the product's.
//
//	tests ──► gateway (versitygw in a process of its own, data in a temporary folder) ◄── bench (Sluice and rclone)
package e2e
