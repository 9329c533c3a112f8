// Package s3store is an [objectstore.Store] in an S3 bucket, on AWS or on any server that speaks its protocol. It is the
// only package that imports the AWS SDK.
//
//	Put up to 16 MiB ──► PutObject, signed with the caller's SHA-256: the server refuses damaged content
//	larger Put ────────► parts, read where they are sent from or copied in the server, 8 at once of all objects,
//	                     each repeated alone, and aborted on failure; unless the caller asks for one request
//	Get ───────────────► ranged GetObject into the caller's buffer
//	conditions ────────► If-Match and If-None-Match; 412 and 409 are conflicts
//
// The SDK's retries are off: only [objectstore.Retry] retries. Its additional checksums are off for endpoints other than
// AWS's, since many servers do not support them.
package s3store
