// Package s3test shows tests what an S3 server keeps that no [objectstore.Store] lists.
package s3test
