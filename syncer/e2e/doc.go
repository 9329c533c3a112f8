// Package e2e tests the syncer against real S3 servers, versitygw and rclone, and measures it against rclone. It is a separate module,
// so that their dependencies are not the product's.
//
//	tests ──► gateway (versitygw in a child process, data in a temporary folder) ◄── bench (Sluice and rclone)
package e2e
