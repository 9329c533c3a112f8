package schemas

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ServiceState is the state of a service.
type ServiceState string

// The states of a service.
const (
	ServiceStarting  ServiceState = "starting"  // its process starts, or is not healthy yet
	ServiceRunning   ServiceState = "running"   // it was healthy at the last checks
	ServiceUnhealthy ServiceState = "unhealthy" // its checks failed or its process has ended, and it will be started again
	ServiceStopping  ServiceState = "stopping"  // it was asked to stop
	ServiceStopped   ServiceState = "stopped"   // by request, or with its session or its worker
	ServiceFailed    ServiceState = "failed"    // its starts have failed, or it was lost with its worker
)

// ServiceStates lists the states.
func ServiceStates() []ServiceState {
	return []ServiceState{ServiceStarting, ServiceRunning, ServiceUnhealthy, ServiceStopping, ServiceStopped, ServiceFailed}
}

// Ended reports that a service in this state is not supervised: it may be started again.
func (s ServiceState) Ended() bool { return s == ServiceStopped || s == ServiceFailed }

// HealthCheck is how the health of a service is checked. Exactly one of Port, Socket and Command is set.
type HealthCheck struct {
	// Port is a TCP port on the loopback interface of the sandbox. With Path, a GET must be answered with a status from 200 to 299;
	// otherwise a connection is enough.
	Port int64 `json:"port,omitempty"`
	// Socket is the absolute path of a unix socket in the sandbox, used as Port.
	Socket string `json:"socket,omitempty"`
	// Command is run in the sandbox, and must exit with 0. No shell is involved.
	Command []string `json:"command,omitempty"`
	// Path is the path of an HTTP request, such as /health. Default: no request.
	Path string `json:"path,omitempty"`
	// IntervalMS is the time between two checks of a running service, in milliseconds. Default 10 s.
	IntervalMS int64 `json:"interval_ms,omitempty"`
	// TimeoutMS bounds one check, in milliseconds. Default 2 s.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// ServiceSpec describes a service to start.
type ServiceSpec struct {
	// Command, Args, Env and Cwd are those of an [Exec].
	Command string            `json:"command"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	// Health is how its health is checked. Default: a process that runs is healthy.
	Health *HealthCheck `json:"health,omitempty"`
	// StartTimeoutMS is how long one start may take until the service is healthy, in milliseconds. Default 30 s.
	StartTimeoutMS int64 `json:"start_timeout_ms,omitempty"`
	// GraceMS is the time between SIGTERM and SIGKILL, in milliseconds. Default 5 s.
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// Service is a service as its worker last recorded it. It is stored in the state bucket under service.<tenant>.<thread>.<name>.
type Service struct {
	// Thread is the conversation, Name the service's name in it.
	Thread string `json:"thread"`
	Name   string `json:"name"`
	// Session is the session that it belongs to.
	Session string `json:"session,omitempty"`
	// Worker supervises it.
	Worker string `json:"worker,omitempty"`
	// Spec is what was started. Events leave the values of Env out.
	Spec ServiceSpec `json:"spec"`
	// State is what became of it so far.
	State ServiceState `json:"state"`
	// Since is when it entered this state, by the worker's clock.
	Since time.Time `json:"since"`
	// Processes are its last processes, the newest last. Their output is its log.
	Processes []string `json:"processes,omitempty"`
	// Starts is how many starts there were in a row, RestartAttempts how many of them followed a failure. Both are 0 once it has been healthy
	// for 10 s.
	Starts          int `json:"starts,omitempty"`
	RestartAttempts int `json:"restart_attempts,omitempty"`
	// HealthyMS is how long its newest process took until it was healthy, in milliseconds.
	HealthyMS float64 `json:"healthy_ms,omitempty"`
	// Error is why the last check or process failed.
	Error *Error `json:"error,omitempty"`
}

// Process is its newest process; empty for none.
func (s *Service) Process() string {
	if len(s.Processes) == 0 {
		return ""
	}
	return s.Processes[len(s.Processes)-1]
}

// Healthy reports whether it runs, and has not failed its last checks.
func (s *Service) Healthy() bool { return s.State == ServiceRunning }

// BaseURL is the address of the server whose health is checked over HTTP, as the service's sandbox sees it; empty for none.
func (s *Service) BaseURL() string {
	h := s.Spec.Health
	if h == nil || h.Port == 0 || h.Path == "" {
		return ""
	}
	return fmt.Sprintf("http://127.0.0.1:%d", h.Port)
}

// Public returns the service without the values of its environment.
func (s *Service) Public() *Service {
	public := *s
	public.Spec.Env = nil
	return &public
}

// ServiceRequest starts or stops a service. It is sent on ctl.<thread>._.service. Either Start or Stop is set.
type ServiceRequest struct {
	// Name is the service's name in its thread; see [ValidID].
	Name string `json:"name"`
	// Session is the id that the session must have, else the request fails with session_expired. Default: any session.
	Session string `json:"session,omitempty"`
	// Start starts it, or joins a start of the same spec. The reply comes when it is healthy, or has failed.
	Start *ServiceSpec `json:"start,omitempty"`
	// Stop stops it. The reply comes when it is stopped.
	Stop bool `json:"stop,omitempty"`
}

// ServiceReply is the reply to a [ServiceRequest].
type ServiceReply struct {
	// Service is the service, also with an error.
	Service *Service `json:"service,omitempty"`
	// Error is why the request failed.
	Error *Error `json:"error,omitempty"`
}

// ServiceControl is a request about a service as the thread's owner receives it. Tenant and Thread are those of the subject.
type ServiceControl struct {
	Tenant, Thread string
	ServiceRequest
}

// MaxSocketPath is the most bytes of a unix socket's path: the system's limit.
const MaxSocketPath = 107

// MaxHealthPath is the most bytes of the path of a health check's request.
const MaxHealthPath = 1024

// DecodeServiceRequest decodes and validates a request about a service, as strictly as [DecodeCommand] and with the same errors.
func DecodeServiceRequest(body []byte) (*ServiceRequest, error) {
	return decodeRequest("service request", body, (*ServiceRequest).Validate)
}

// Validate checks every field. The error is invalid_argument with the detail "path".
func (r *ServiceRequest) Validate() error {
	if err := first(CheckID("name", r.Name), checkOptionalID("session", r.Session)); err != nil {
		return err
	}
	if (r.Start != nil) == r.Stop {
		return invalid("start", "set start or stop")
	}
	if r.Start == nil {
		return nil
	}
	return r.Start.validate()
}

// Exec is the command of the service.
func (s *ServiceSpec) Exec() *Exec {
	return &Exec{Command: s.Command, Args: s.Args, Env: s.Env, Cwd: s.Cwd, OutputLimit: new(int64)}
}

func (s *ServiceSpec) validate() error {
	if err := first(s.Exec().validate("start"), checkMillis("start.start_timeout_ms", s.StartTimeoutMS), checkMillis("start.grace_ms", s.GraceMS)); err != nil || s.Health == nil {
		return err
	}
	return s.Health.validate()
}

func (h *HealthCheck) validate() error {
	const path = "start.health."
	set := 0
	for _, is := range []bool{h.Port != 0, h.Socket != "", h.Command != nil} {
		if is {
			set++
		}
	}
	badPath := h.Path != "" && (h.Path[0] != '/' || len(h.Path) > MaxHealthPath || strings.ContainsFunc(h.Path, func(r rune) bool { return r <= ' ' || r == 0x7f }))
	switch {
	case set != 1:
		return invalid(path+"port", "set one of port, socket and command")
	case h.Port < 0 || h.Port > 65535:
		return invalid(path+"port", "%d is not a port", h.Port)
	case h.Socket != "" && (h.Socket[0] != '/' || len(h.Socket) > MaxSocketPath || strings.Contains(h.Socket, "\x00")):
		return invalid(path+"socket", "%.120q is not an absolute path of at most %d bytes", h.Socket, MaxSocketPath)
	case h.Command != nil && (len(h.Command) == 0 || h.Command[0] == "" || len(h.Command) > 256 || slices.ContainsFunc(h.Command, func(a string) bool { return strings.Contains(a, "\x00") })):
		return invalid(path+"command", "the command is empty, has more than 256 arguments, or has a NUL byte")
	case badPath:
		return invalid(path+"path", "%.80q is not the path of a request", h.Path)
	case h.Path != "" && len(h.Command) > 0:
		return invalid(path+"path", "a command has no path")
	}
	return first(checkMillis(path+"interval_ms", h.IntervalMS), checkMillis(path+"timeout_ms", h.TimeoutMS))
}
