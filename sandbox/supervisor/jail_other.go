//go:build !linux

package supervisor

import "errors"

// warden is for Linux alone.
type warden struct{ pid1 bool }

func (w *warden) arguments(args []string) error {
	if len(args) > 0 {
		return errors.New("takes no arguments; it is started by sluice itself")
	}
	return nil
}

func (w *warden) prepare() error { return nil }
func (w *warden) lower()         {}
func (w *warden) raise()         {}
func (w *warden) kills() int     { return 0 }
func (w *warden) first() *conn   { return nil }
