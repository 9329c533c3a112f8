package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox/docker"
)

// pullEvery is how often a pull is told of, at most.
const pullEvery = 3 * time.Second

// pulls puts the engine's many reports of a pull into a few words.
type pulls struct {
	say func(text string)

	mu     sync.Mutex
	image  string
	layers map[string]docker.Progress
	told   time.Time
}

// report takes one of the engine's.
func (p *pulls) report(r docker.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Image != p.image {
		p.image, p.layers, p.told = r.Image, make(map[string]docker.Progress), time.Now()
		p.say("image " + r.Image + " is not here: pulling it")
	}
	if r.Layer == "" {
		return
	}
	if was, ok := p.layers[r.Layer]; ok && r.Total == 0 {
		r.Current, r.Total = was.Total, was.Total // another state of a layer that has come
	}
	p.layers[r.Layer] = r
	if time.Since(p.told) < pullEvery {
		return
	}
	p.told = time.Now()
	done, has, all := 0, int64(0), int64(0)
	for _, l := range p.layers {
		if l.Status == "Pull complete" || l.Status == "Already exists" {
			done++
		}
		has, all = has+l.Current, all+l.Total
	}
	p.say(fmt.Sprintf("pulling image %s: %d of %d layers, %.1f of %.1f MB", p.image, done, len(p.layers), float64(has)/1e6, float64(all)/1e6))
}
