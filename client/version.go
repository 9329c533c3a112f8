package client

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// Push stores the workspace as a new version, where the template says. What processes write meanwhile may be in the next one. One that has
// not changed makes no version, and the report names none. The report may come with an error. Errors: session_expired; invalid_argument for
// a template that stores no workspaces; conflict when a path changed in the store too, or another sync is under way; unavailable,
// deadline_exceeded.
func (s *Session) Push(ctx context.Context) (*schemas.SyncReport, error) {
	reply, err := s.sync(ctx, schemas.SyncRequest{Op: schemas.SyncPush})
	return reply.Sync, err
}

// Restore brings the workspace back to a version: its id, or a time (RFC 3339) for the newest up to then. What is there is pushed first, so that
// nothing is lost. The version becomes the newest, under a new id. With a path, only that file or folder is restored, nothing is deleted, and the
// next push stores it. The report may come with an error. Errors: those of Push; not_found when no such version or path is kept.
func (s *Session) Restore(ctx context.Context, at, path string) (*schemas.SyncReport, error) {
	reply, err := s.sync(ctx, schemas.SyncRequest{Op: schemas.SyncRestore, At: at, Path: path})
	return reply.Sync, err
}

// Versions lists the stored versions of the workspace, the newest first, at most 1,000. Errors: those of Push; conflict only while many other
// syncs of the workspace are under way.
func (s *Session) Versions(ctx context.Context) ([]schemas.WorkspaceVersion, error) {
	reply, err := s.sync(ctx, schemas.SyncRequest{Op: schemas.SyncVersions})
	return reply.Versions, err
}

// Changes compares the workspace with the current version: what a push would store, before the first one all of it. Errors: those of Versions.
func (s *Session) Changes(ctx context.Context) (*schemas.WorkspaceDiff, error) {
	reply, err := s.sync(ctx, schemas.SyncRequest{Op: schemas.SyncDiff})
	return reply.Diff, err
}

// Diff compares a file line by line with a version: its id, a time (RFC 3339) for the newest up to then, or "" for the current one. What one of
// them lacks is empty. Errors: those of Versions; not_found when both lack the file, or no such version is kept; invalid_argument for what is no
// file.
func (s *Session) Diff(ctx context.Context, path, at string) (*schemas.WorkspaceDiff, error) {
	if path == "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "a comparison of lines needs the path of a file")
	}
	reply, err := s.sync(ctx, schemas.SyncRequest{Op: schemas.SyncDiff, At: at, Path: path})
	return reply.Diff, err
}

// sync sends a sync request. The reply is never nil.
func (s *Session) sync(ctx context.Context, req schemas.SyncRequest) (*schemas.SessionReply, error) {
	req.Session = s.id
	if err := req.Validate(); err != nil {
		return &schemas.SessionReply{}, err
	}
	reply, err := s.client.caller.SyncWorkspace(ctx, s.client.tenant, s.thread, req)
	if reply == nil {
		return &schemas.SessionReply{}, expired(err)
	}
	return reply, err
}
