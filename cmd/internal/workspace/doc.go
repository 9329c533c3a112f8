// Package workspace carries sessions' workspaces to and from where their templates keep them: it joins the hooks that ask for it
// with package syncer.
//
//	hooks ──pull, push──► Keeper ──location──► Places ──► syncer ──► s3store | dirstore
//	                         └─ one operation for each folder at a time, and fenced: a worker that was replaced pushes nothing
package workspace
