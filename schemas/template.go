package schemas

// Template is a named recipe for sessions: what sandbox they get, which hooks run, and which agent answers messages. It is
// written in YAML with these field names, and kept in KV by the workers that have it.
type Template struct {
	// Name is what commands and sessions call it; see [ValidID].
	Name string `json:"name"`
	// Description is for people.
	Description string `json:"description,omitempty"`
	// Provider is the kind of sandbox: auto, jail, docker, local. Default auto.
	Provider string `json:"provider,omitempty"`
	// Image is what docker makes the sandbox's root from; Rootfs is a folder or tar on the worker, for jail.
	Image  string `json:"image,omitempty"`
	Rootfs string `json:"rootfs,omitempty"`
	// Network is what the sandbox reaches. Default none.
	Network Network `json:"network,omitempty"`
	// Limits bound the sandbox; zero fields have the provider's defaults.
	Limits TemplateLimits `json:"limits,omitzero"`
	// Env is the environment of every process. Nothing secret belongs here: it can be read by whoever can list templates.
	Env map[string]string `json:"env,omitempty"`
	// Secrets are further variables, by reference: their values are read on the worker when a sandbox is made.
	Secrets map[string]SecretRef `json:"secrets,omitempty"`
	// Session is how long a session of this template lives.
	Session TemplateSession `json:"session,omitzero"`
	// Sync is where the workspace is kept. Default: nowhere but on the worker.
	Sync *TemplateSync `json:"sync,omitempty"`
	// Hooks are what runs in each phase, in this order. Default: those that Sync and Agent need.
	Hooks map[Phase][]HookSpec `json:"hooks,omitempty"`
	// Agent answers messages. Without one, a message is refused.
	Agent *TemplateAgent `json:"agent,omitempty"`
	// Policy bounds which commands may be asked for. Default: every one; the sandbox is the boundary.
	Policy *TemplatePolicy `json:"policy,omitempty"`
}

// Network is what a sandbox reaches.
type Network string

// The networks.
const (
	NetworkNone Network = "none" // nothing, not even the host
	NetworkHost Network = "host" // what the host reaches: for agents that must talk to a model
)

// Networks lists every network.
func Networks() []Network { return []Network{NetworkNone, NetworkHost} }

// The providers that a template may name. An empty one is auto.
const (
	ProviderAuto   = "auto" // the worker's choice: jail or docker, whichever it can run
	ProviderJail   = "jail"
	ProviderDocker = "docker"
	ProviderLocal  = "local" // isolates nothing
)

func templateProviders() []string {
	return []string{ProviderAuto, ProviderJail, ProviderDocker, ProviderLocal}
}

// TemplateLimits bound a sandbox. Zero is the provider's default, for each by itself.
type TemplateLimits struct {
	// MemoryBytes is for all that runs, in bytes. In YAML it is written memory: 512MiB, and so are the others in bytes.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// CPUs is how many processors' time all that runs may have; a fraction is part of one.
	CPUs float64 `json:"cpus,omitempty"`
	// PIDs is how many processes and threads there may be.
	PIDs int64 `json:"pids,omitempty"`
	// TmpBytes bounds /tmp, WorkspaceBytes the workspace, in bytes.
	TmpBytes       int64 `json:"tmp_bytes,omitempty"`
	WorkspaceBytes int64 `json:"workspace_bytes,omitempty"`
	// WorkspaceFiles is how many files the workspace may have.
	WorkspaceFiles int64 `json:"workspace_files,omitempty"`
}

// SecretRef says where a worker finds a secret. One of the fields is set.
type SecretRef struct {
	// Env is a variable of the worker's own environment; it must begin with SLUICE_SECRET_.
	Env string `json:"env,omitempty"`
	// File is a file on the worker, of which the first line is the secret. Absolute.
	File string `json:"file,omitempty"`
}

// TemplateSession is how long a session lives. In YAML durations are written 30m, 10s.
type TemplateSession struct {
	// IdleTimeoutMS ends a session that has run nothing for that long. Default 30 min.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	// ParkAfterMS stops the sandbox of a session that has run nothing for that long, and keeps the session. Default 0: never.
	ParkAfterMS int64 `json:"park_after_ms,omitempty"`
	// MaxLifetimeMS ends a session that old, whatever runs. Default 0: never.
	MaxLifetimeMS int64 `json:"max_lifetime_ms,omitempty"`
	// StartTimeoutMS bounds the making of a sandbox with its cold-start hooks; no command's timeout counts it. Default 60 s.
	StartTimeoutMS int64 `json:"start_timeout_ms,omitempty"`
	// StopGraceMS is the time between SIGTERM and SIGKILL at the end. Default 10 s.
	StopGraceMS int64 `json:"stop_grace_ms,omitempty"`
}

// TemplateSync is where workspaces are kept.
type TemplateSync struct {
	// Location is s3://bucket/prefix or file:///folder. {tenant}, {agent} (the template's name) and {thread} are filled in;
	// without {thread} in it, all threads would share one workspace, which is refused.
	Location string `json:"location"`
	// Endpoint is an S3-compatible server; default AWS's. Credentials are the worker's own, from the AWS SDK's usual places.
	Endpoint string `json:"endpoint,omitempty"`
	// Init says whether a cold start pulls the workspace from there. Default true.
	Init *bool `json:"init_from_s3,omitempty"`
	// Layout is packed or plain; see docs/sync.md. Default packed.
	Layout string `json:"layout,omitempty"`
	// OnConflict is what a push or pull does about a file that changed on both sides: fail, local, remote, both. Default fail.
	OnConflict string `json:"on_conflict,omitempty"`
}

// TemplateAgent answers messages: a program that gets the prompt and prints the answer.
type TemplateAgent struct {
	// Command is the program and its arguments. An argument {prompt} is replaced by the prompt.
	Command []string `json:"command"`
	// Stdin says whether the prompt is what the program reads. Default: where no argument is {prompt}.
	Stdin *bool `json:"stdin,omitempty"`
	// TimeoutMS ends it after that many milliseconds. Default 0: no timeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Output is text, or jsonl for a program that prints JSON lines, of which {"type":"result","result":…} holds the answer.
	// Default text. Token usage is read from lines of that type either way.
	Output string `json:"output,omitempty"`
}

// PromptWord is the argument of an agent's command that the prompt takes the place of.
const PromptWord = "{prompt}"

// The values of [TemplateAgent].Output. An empty one is text.
const (
	OutputText      = "text"
	OutputJSONLines = "jsonl"
)

// AgentOutputs lists the values of [TemplateAgent].Output.
func AgentOutputs() []string { return []string{OutputText, OutputJSONLines} }

// PolicyDocuments is a policy that is built in: what work on documents needs.
const PolicyDocuments = "documents"

// PolicyNames lists the policies that are built in.
func PolicyNames() []string { return []string{PolicyDocuments} }

// TemplatePolicy says which commands may be asked for. A deny wins over an allow; an empty Allow allows all.
type TemplatePolicy struct {
	// Name takes a policy that is built in: documents. Allow and Deny add to it.
	Name string `json:"name,omitempty"`
	// Allow and Deny are names of programs; * stands for any characters.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}
