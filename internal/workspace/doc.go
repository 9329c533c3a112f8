// Package workspace pulls and pushes the workspaces of sessions: it joins the hooks that ask for it with package syncer.
//
//	hooks ──pull, push──► Syncer ──URL──► Locations ──► syncer.Syncer ──► s3store | dirstore
//	                         └─ one operation a folder at a time, and fenced: a worker that lost the session pushes nothing
package workspace
