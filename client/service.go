package client

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/schemas"
)

// ServiceRequest is a service to start. Name and Command are required.
type ServiceRequest struct {
	// Name is the service's name in its thread.
	Name string
	// Provider, Image and Template are those of the session that the thread gets when it has none. Default: the worker's choice.
	Provider, Image, Template string
	schemas.ServiceSpec
}

// Services are the services of a thread: processes that its worker supervises. Errors of all methods: invalid_argument, unavailable.
// Methods are safe for concurrent use.
type Services struct {
	client *Client
	thread string

	sandbox *Sandbox // whose session runs those that it starts; nil for none
}

// Services returns the services of a thread; of all threads when it is empty, which only List takes.
func (c *Client) Services(thread string) *Services { return &Services{client: c, thread: thread} }

// Start starts a service, or joins the start of the same one, and returns it once it is healthy. When ctx ends first, the start goes on.
// Errors: conflict when a service of this name was started otherwise; why the start failed, with the service; those of CreateSession.
func (s *Services) Start(ctx context.Context, req ServiceRequest) (service *schemas.Service, err error) {
	start := schemas.ServiceRequest{Name: req.Name, Start: &req.ServiceSpec}
	if err := cmp.Or(schemas.CheckID("thread", s.thread), start.Validate()); err != nil {
		return nil, err
	}
	done, err := admit(ctx, s.client.admission, s.thread, "service/"+s.thread+"/"+req.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	if s.sandbox != nil {
		err = s.sandbox.do(ctx, always, func(session *Session) error {
			start.Session = session.id
			service, err = s.control(ctx, start)
			err = expired(err)
			return err
		})
		return service, err
	}
	place := schemas.PlaceRequest{Thread: s.thread, Provider: req.Provider, Image: req.Image, Template: req.Template}
	if _, err := s.client.caller.Place(ctx, s.client.tenant, place); err != nil {
		return nil, err
	}
	return s.control(ctx, start)
}

// Stop stops a service: SIGTERM, its grace, SIGKILL. It returns the service once it has ended; one that has ended before is returned at
// once. Errors also: not_found.
func (s *Services) Stop(ctx context.Context, name string) (*schemas.Service, error) {
	stop := schemas.ServiceRequest{Name: name, Stop: true}
	if err := cmp.Or(schemas.CheckID("thread", s.thread), stop.Validate()); err != nil {
		return nil, err
	}
	return s.control(ctx, stop)
}

func (s *Services) control(ctx context.Context, req schemas.ServiceRequest) (*schemas.Service, error) {
	return s.client.caller.ControlService(ctx, s.client.tenant, s.thread, req)
}

// List returns the services as their workers last recorded them. One that has ended is kept as long as events.
func (s *Services) List(ctx context.Context) ([]schemas.Service, error) {
	if err := checkIDs(s.thread, ""); err != nil {
		return nil, err
	}
	list, err := s.client.caller.Services(ctx, s.client.tenant, s.thread)
	slices.SortFunc(list, func(a, b schemas.Service) int {
		return cmp.Or(strings.Compare(a.Thread, b.Thread), strings.Compare(a.Name, b.Name))
	})
	return list, err
}

// Get returns one service. Errors also: not_found.
func (s *Services) Get(ctx context.Context, name string) (*schemas.Service, error) {
	if err := schemas.CheckID("thread", s.thread); err != nil {
		return nil, err
	}
	list, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "thread %s has no service %.128s", s.thread, name)
}

// MaxServiceLines is how many lines [Services.Logs] returns at most.
const MaxServiceLines = 1000

// Logs returns the last lines that a service printed, on both streams together and over its restarts: at most tail, and at most
// [MaxServiceLines]. Each begins with the time of its storing. Bytes that are not UTF-8 are replaced. Errors also: not_found.
func (s *Services) Logs(ctx context.Context, name string, tail int) ([]string, error) {
	service, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	tail = min(tail, MaxServiceLines)
	var lines []string
	for _, process := range slices.Backward(service.Processes) {
		if len(lines) >= tail {
			break
		}
		l := newLineLog(tail - len(lines))
		err := s.client.Logs(ctx, LogQuery{Thread: s.thread, Process: process, Tail: tail - len(lines)}, l.add)
		if err != nil && schemas.CodeOf(err) != schemas.CodeNotFound { // it has no record yet, or no more
			return nil, err
		}
		lines = append(l.all(), lines...)
	}
	return lines, nil
}

// lineLog keeps the last lines of an output: a ring.
type lineLog struct {
	lines []string
	next  int                                 // the oldest line, once the ring is full
	open  map[schemas.Stream]*strings.Builder // a line without its end
}

// maxLine is how many bytes of a line are kept.
const maxLine = 64 << 10

func newLineLog(size int) *lineLog {
	return &lineLog{lines: make([]string, 0, max(size, 1)), open: make(map[schemas.Stream]*strings.Builder)}
}

// serviceTime is the form of the time before a line.
const serviceTime = "2006-01-02T15:04:05.000Z"

func (l *lineLog) add(k schemas.Chunk) error {
	for part := range strings.Lines(string(k.Data)) {
		b := l.open[k.Stream]
		if b == nil {
			b = new(strings.Builder)
			b.WriteString(k.Time.UTC().Format(serviceTime) + " | ")
			l.open[k.Stream] = b
		}
		text, ends := strings.CutSuffix(part, "\n")
		b.WriteString(text[:min(len(text), max(0, maxLine-b.Len()))])
		if ends {
			l.close(k.Stream)
		}
	}
	return nil
}

// close ends the open line of a stream.
func (l *lineLog) close(stream schemas.Stream) {
	b := l.open[stream]
	if b == nil {
		return
	}
	delete(l.open, stream)
	line := strings.ToValidUTF8(strings.TrimSuffix(b.String(), "\r"), "\uFFFD")
	if len(l.lines) < cap(l.lines) {
		l.lines = append(l.lines, line)
		return
	}
	l.lines[l.next] = line
	l.next = (l.next + 1) % len(l.lines)
}

// all returns the lines, the oldest first.
func (l *lineLog) all() []string {
	l.close(schemas.Stdout)
	l.close(schemas.Stderr)
	return append(slices.Clone(l.lines[l.next:]), l.lines[:l.next]...)
}
