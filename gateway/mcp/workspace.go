package mcp

import (
	"context"
	"errors"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

type restoreInput struct {
	target
	At   string `json:"at" jsonschema:"Version to restore: its id, of list_versions, or a time (RFC 3339, such as 2026-01-02T15:04:05Z) for the newest one up to then."`
	Path string `json:"path,omitempty" jsonschema:"Only this file or folder, relative to the workspace: nothing is deleted then. Default: the whole workspace."`
}

// synced is what a sync has done.
type synced struct {
	Version   string   `json:"version,omitempty" jsonschema:"New version; none when nothing has changed."`
	Files     int64    `json:"files" jsonschema:"Files that were stored, or brought back."`
	Bytes     int64    `json:"bytes" jsonschema:"Bytes that were sent, or received."`
	Deleted   int64    `json:"deleted,omitempty" jsonschema:"Files that were removed."`
	Conflicts []string `json:"conflicts,omitempty" jsonschema:"Paths that changed on both sides."`
}

func syncedOf(r *schemas.SyncReport) synced {
	if r == nil {
		return synced{}
	}
	return synced{Version: r.Version, Files: r.Files, Bytes: r.Bytes, Deleted: r.Deleted, Conflicts: r.Conflicts}
}

type versionList struct {
	Versions []listedVersion `json:"versions" jsonschema:"The newest first, at most 1,000."`
}

type listedVersion struct {
	ID      string `json:"id" jsonschema:"Id, for restore_workspace."`
	Time    string `json:"time" jsonschema:"When it was stored, in UTC (RFC 3339)."`
	Current bool   `json:"current,omitempty" jsonschema:"A new sandbox begins with it."`
}

func (s *server) addWorkspaceTools() {
	add(s, tool{
		name: "sync_workspace", title: "Store the workspace", repeats: true,
		description: "Store the workspace as a new version that restore_workspace can bring back, also after the sandbox is gone. " +
			"The operator sets where; without that it is an invalid_argument. Use it before risky changes, and when the work is done.",
	}, s.syncWorkspace)
	add(s, tool{
		name: "list_versions", title: "List the versions of the workspace", reads: true,
		description: "List the stored versions of the workspace.",
	}, s.listVersions)
	add(s, tool{
		name: "restore_workspace", title: "Restore the workspace", destroys: true, repeats: true,
		description: "Bring the workspace, or one path of it, back to a stored version. What is there is stored as a version first, so that nothing is lost. " +
			"Without path the version becomes the newest, and files that it lacks are removed. Processes go on: stop those that use the files.",
		input: rules{"at": filled},
	}, s.restoreWorkspace)
}

// session is the session of a call's thread, which is created if it has none. Errors: those of client.CreateSession.
func (s *server) session(ctx context.Context, t target) (*client.Session, error) {
	thread, err := s.thread(t)
	if err != nil {
		return nil, err
	}
	session, err := s.Client.Session(ctx, thread)
	if errors.Is(err, schemas.ErrNotFound) {
		session, _, err = s.Client.CreateSession(ctx, client.SessionRequest{Thread: thread, Template: s.Template, Provider: s.Provider, Image: s.Image})
	}
	return session, err
}

func (s *server) syncWorkspace(ctx context.Context, _ *sdk.CallToolRequest, in target) (synced, error) {
	session, err := s.session(ctx, in)
	if err != nil {
		return synced{}, err
	}
	r, err := session.Push(ctx)
	return syncedOf(r), err
}

func (s *server) listVersions(ctx context.Context, _ *sdk.CallToolRequest, in target) (versionList, error) {
	list := versionList{Versions: []listedVersion{}}
	session, err := s.session(ctx, in)
	if err != nil {
		return list, err
	}
	versions, err := session.Versions(ctx)
	for _, v := range versions {
		list.Versions = append(list.Versions, listedVersion{v.ID, v.Time.UTC().Format(time.RFC3339Nano), v.Current})
	}
	return list, err
}

func (s *server) restoreWorkspace(ctx context.Context, _ *sdk.CallToolRequest, in restoreInput) (synced, error) {
	session, err := s.session(ctx, in.target)
	if err != nil {
		return synced{}, err
	}
	r, err := session.Restore(ctx, in.At, in.Path)
	return syncedOf(r), err
}
