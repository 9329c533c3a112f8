// Package objectstore declares the object store that a workspace is synced with, and what works with any of them.
//
//	Store ◄── s3store, dirstore, storetest.Memory        (storetest.Run is the conformance suite)
//	  ▲
//	  └── Retry (decorator), ProbeConditions (check before a folder relies on them)
package objectstore
