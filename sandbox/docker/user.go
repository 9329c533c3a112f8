package docker

import (
	"os"
	"strconv"

	"github.com/sluice-dev/sluice/sandbox/userids"
	"github.com/sluice-dev/sluice/sandbox/workspace"
)

// reserveUsers keeps the users of containers that an earlier process left from being given to others.
func (p *Provider) reserveUsers() error {
	if os.Geteuid() != 0 {
		return nil // only root can give files away, so that each container has the worker's user
	}
	p.users = userids.New(p.dir)
	orphans, err := p.registry.Orphans()
	for _, r := range orphans {
		p.users.Reserve(r.UID)
	}
	return err
}

// allocateUser returns the id of a container's user; 0 stands for the worker's. The one that has the workspace already saves the change of
// its owner. Errors: limit_exceeded.
func (p *Provider) allocateUser(workspaceDir string) (int, error) {
	if p.users == nil {
		return 0, nil
	}
	return p.users.Allocate(workspace.Owner(workspaceDir))
}

func (p *Provider) releaseUser(uid int) {
	if p.users != nil {
		p.users.Release(uid)
	}
}

// userOf is a user and its group in the engine's form.
func userOf(uid int) string {
	if uid == 0 {
		return strconv.Itoa(os.Geteuid()) + ":" + strconv.Itoa(os.Getegid())
	}
	return strconv.Itoa(uid) + ":" + strconv.Itoa(uid)
}

// chown gives a workspace to a container's user. Processes may run in it: no symbolic link is followed, and nothing outside is reached.
func chown(dir string, uid int) error {
	if uid == 0 {
		return nil
	}
	return workspace.Chown(dir, uid, uid)
}
