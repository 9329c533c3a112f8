// Package s3store is a [syncer.Store] in an S3 bucket, on AWS or on any server that speaks its protocol. It is the only
// package that imports the AWS SDK.
//
//	Put up to 16 MiB ──► PutObject, signed with the SHA-256 that the caller has: the server refuses what arrives damaged
//	Put beyond ────────► transfermanager: parts in parallel
//	Get ───────────────► ranged GetObject into the caller's buffer
//	conditions ────────► If-Match and If-None-Match; 412 and 409 are conflicts
//
// The SDK's own retries are off: [syncer.Retry] is the one place that tries again. Its additional checksums are off for
// endpoints other than AWS's, of which many do not know them.
package s3store
