package dashboard

import (
	"errors"
	"net/url"

	"github.com/sluice-dev/sluice/schemas"
)

// processView is the page of a process.
type processView struct {
	schemas.ProcessInfo
	Result *schemas.Result // nil while it has none
	Output string          // the stream of its output
	Tail   bool            // only its last lines are read
}

// outputLines is how many lines of output a page asks for.
const outputLines = "1000"

func processPage(v *visit) (*page, error) {
	p, err := v.client.Process(v.ctx(), "", v.r.PathValue("process"))
	if err != nil {
		return nil, err
	}
	info, err := p.Info(v.ctx())
	if err != nil {
		return nil, err
	}
	view := &processView{ProcessInfo: *info, Output: apiPath + "processes/" + url.PathEscape(info.Process) + "/output?tail=" + outputLines}
	if view.Status.Ended() {
		view.Result, err = p.Result(v.ctx())
		if err != nil && !errors.Is(err, schemas.ErrUnavailable) {
			return nil, err
		}
	}
	shown := &page{name: "process", Title: shorten(60, commandLine(*info)), Section: "processes", Data: view}
	if !view.Status.Ended() {
		shown.Live = apiPath + "events?process=" + url.QueryEscape(info.Process)
	}
	return shown, nil
}
