package registry

// Survivor is a supervisor that an earlier process has started, so that nobody here is its parent.
type Survivor struct {
	process survivor
	// Gone is closed when it has ended.
	Gone chan struct{}
}

// Find finds a supervisor by its process id and what StartTime told of it. Errors: not_found when it has ended.
func Find(pid int, start uint64) (*Survivor, error) {
	p, err := find(pid, start)
	if err != nil {
		return nil, err
	}
	s := &Survivor{process: p, Gone: make(chan struct{})}
	go func() {
		defer close(s.Gone)
		s.process.wait()
	}()
	return s, nil
}

// Kill ends it by force. It may have ended already.
func (s *Survivor) Kill() { s.process.kill() }
