//go:build !linux

package supervisor

import "errors"

// jailSupport does nothing: jails need Linux.
type jailSupport struct{ pid1 bool }

func (j *jailSupport) parse(args []string) error {
	if len(args) > 0 {
		return errors.New("takes no arguments: only sluice starts a supervisor")
	}
	return nil
}

func (j *jailSupport) protect() error     { return nil }
func (j *jailSupport) raiseProcessScore() {}
func (j *jailSupport) useProcessScore()   {}
func (j *jailSupport) useOwnScore()       {}
func (j *jailSupport) oomKills() int      { return 0 }
func (j *jailSupport) firstConn() *conn   { return nil }
