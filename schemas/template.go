package schemas

// Template is a named configuration of sessions: their sandbox, their hooks, and the agent that answers messages. It is written
// in YAML with these field names. Each worker stores its templates in KV.
type Template struct {
	// Name is the id that commands and sessions refer to; see [ValidID].
	Name string `json:"name"`
	// Description is a text for people.
	Description string `json:"description,omitempty"`
	// Provider is the sandbox's provider: auto, jail, docker or local. Default auto.
	Provider string `json:"provider,omitempty"`
	// Image is the image of the sandbox's root file system, for docker. Rootfs is a folder or tar file on the worker, for jail.
	Image  string `json:"image,omitempty"`
	Rootfs string `json:"rootfs,omitempty"`
	// Network is the network that the sandbox can reach. Default none.
	Network Network `json:"network,omitempty"`
	// Limits are the sandbox's resource limits.
	Limits TemplateLimits `json:"limits,omitzero"`
	// Env is the environment of every process. It must not hold secrets: everyone who can list templates can read it.
	Env map[string]string `json:"env,omitempty"`
	// Secrets are environment variables by reference. The worker reads their values when it creates a sandbox.
	Secrets map[string]SecretRef `json:"secrets,omitempty"`
	// Session sets how long sessions live.
	Session TemplateSession `json:"session,omitzero"`
	// Sync sets where workspaces are stored. Default: only on the worker.
	Sync *TemplateSync `json:"sync,omitempty"`
	// Workspace sets what a workspace begins with. Default: what Sync has stored of the thread, else nothing.
	Workspace *TemplateWorkspace `json:"workspace,omitempty"`
	// Hooks are the hooks of each phase, in order. Default: those that Sync and Agent need.
	Hooks map[Phase][]HookSpec `json:"hooks,omitempty"`
	// Agent is the program that answers messages. Without one, messages are refused.
	Agent *TemplateAgent `json:"agent,omitempty"`
	// Policy restricts the commands that callers may run. Default: no restriction. The sandbox, not the policy, is the security
	// boundary.
	Policy *TemplatePolicy `json:"policy,omitempty"`
}

// Network is what a sandbox can reach.
type Network string

// The networks.
const (
	NetworkNone Network = "none" // no network, not even the host
	NetworkHost Network = "host" // the host's network, for agents that call a model
)

// Networks lists every network.
func Networks() []Network { return []Network{NetworkNone, NetworkHost} }

// The values of [Template].Provider. The default is auto.
const (
	ProviderAuto   = "auto" // the worker's choice: jail or docker, whichever it supports
	ProviderJail   = "jail"
	ProviderDocker = "docker"
	ProviderLocal  = "local" // no isolation
)

// TemplateProviders lists the values of [Template].Provider.
func TemplateProviders() []string {
	return []string{ProviderAuto, ProviderJail, ProviderDocker, ProviderLocal}
}

// TemplateLimits are the resource limits of a sandbox. Each field that is 0 has the provider's default.
type TemplateLimits struct {
	// MemoryBytes is the memory of all processes together, in bytes. YAML accepts memory: 512MiB, and the same form for the
	// other sizes.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// CPUs is the number of CPUs of all processes together; fractions are allowed.
	CPUs float64 `json:"cpus,omitempty"`
	// PIDs is the number of processes and threads.
	PIDs int64 `json:"pids,omitempty"`
	// OpenFiles is the number of descriptors that each process may have open.
	OpenFiles int64 `json:"open_files,omitempty"`
	// TmpBytes is the size of /tmp, WorkspaceBytes that of the workspace, in bytes.
	TmpBytes       int64 `json:"tmp_bytes,omitempty"`
	WorkspaceBytes int64 `json:"workspace_bytes,omitempty"`
	// WorkspaceFiles is the number of files in the workspace.
	WorkspaceFiles int64 `json:"workspace_files,omitempty"`
	// FileBytes is the size of one file, in bytes.
	FileBytes int64 `json:"file_bytes,omitempty"`
}

// SecretRef is the place of a secret on the worker. Exactly one field is set.
type SecretRef struct {
	// Env is a variable in the worker's environment. Its name must begin with SLUICE_SECRET_.
	Env string `json:"env,omitempty"`
	// File is the absolute path of a file on the worker. Its first line is the secret.
	File string `json:"file,omitempty"`
}

// SecretPrefix is the prefix of the variables that [SecretRef].Env may name. Templates must not be able to read the rest of the
// worker's environment.
const SecretPrefix = "SLUICE_SECRET_"

// TemplateSession sets how long a session lives. YAML accepts durations such as 30m and 10s.
type TemplateSession struct {
	// IdleTimeoutMS is the time without a running command after which a session ends. Default 30 min.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	// ParkAfterMS is the time without a running command after which a session's sandbox stops; the session stays. Default 0: never.
	ParkAfterMS int64 `json:"park_after_ms,omitempty"`
	// MaxLifetimeMS is the age at which a session ends, even when commands run. Default 0: never.
	MaxLifetimeMS int64 `json:"max_lifetime_ms,omitempty"`
	// StartTimeoutMS is the time to create a sandbox and run its cold-start hooks. It does not count towards a command's timeout.
	// Default 60 s.
	StartTimeoutMS int64 `json:"start_timeout_ms,omitempty"`
	// StopGraceMS is the time between SIGTERM and SIGKILL when the session ends. Default 10 s.
	StopGraceMS int64 `json:"stop_grace_ms,omitempty"`
}

// TemplateSync sets where workspaces are stored.
type TemplateSync struct {
	// Location is s3://bucket/prefix or file:///folder. {tenant}, {agent} (the template's name) and {thread} are replaced.
	// {thread} is required, since threads must not share a workspace.
	Location string `json:"location"`
	// Endpoint is the URL of an S3-compatible server. Default: AWS. The worker takes credentials from the AWS SDK's usual places.
	Endpoint string `json:"endpoint,omitempty"`
	// Init says whether a cold start pulls the workspace. Default true.
	Init *bool `json:"init_from_s3,omitempty"`
	// Layout is packed or plain; see docs/sync.md. Default packed.
	Layout string `json:"layout,omitempty"`
	// OnConflict is what a push or pull does with a file that changed on both sides: fail, local, remote or both. Default fail.
	OnConflict string `json:"on_conflict,omitempty"`
}

// TemplateWorkspace has a workspace begin with what another thread of the tenant has stored.
type TemplateWorkspace struct {
	// From is thread/ID, or thread/{label.NAME} for the thread that the label NAME of the command that creates the session names. Its last
	// version that was pushed is pulled at the cold start, unless the thread has a version of its own.
	From string `json:"from"`
	// Template is the template of that thread, whose Sync says where its versions are. Default: this template.
	Template string `json:"template,omitempty"`
	// Mode is copy or read-only. With read-only, processes cannot write to the workspace, and it is not stored. Default copy.
	Mode string `json:"mode,omitempty"`
}

// The values of [TemplateWorkspace].Mode.
const (
	WorkspaceCopy     = "copy"
	WorkspaceReadOnly = "read-only"
)

// WorkspaceModes lists the values of [TemplateWorkspace].Mode.
func WorkspaceModes() []string { return []string{WorkspaceCopy, WorkspaceReadOnly} }

// ReadOnly reports whether processes cannot write to the workspace. A nil TemplateWorkspace is not read-only.
func (w *TemplateWorkspace) ReadOnly() bool { return w != nil && w.Mode == WorkspaceReadOnly }

// SyncLayouts lists the values of [TemplateSync].Layout.
func SyncLayouts() []string { return []string{"packed", "plain"} }

// SyncConflicts lists the values of [TemplateSync].OnConflict.
func SyncConflicts() []string { return []string{"fail", "local", "remote", "both"} }

// TemplateAgent is a program that reads a prompt and prints the answer.
type TemplateAgent struct {
	// Command is the program and its arguments. The argument {prompt} is replaced by the prompt.
	Command []string `json:"command"`
	// Stdin says whether the program reads the prompt on standard input. Default: true when no argument is {prompt}.
	Stdin *bool `json:"stdin,omitempty"`
	// TimeoutMS is the time after which the agent is killed, in milliseconds. Default 0: no timeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Output is the format of the program's standard output. With text, it is the answer. With jsonl, it is JSON lines, and the
	// answer is the text in them, such as that of {"type":"result","result":…}. Default: jsonl when the first line is a JSON
	// object with a type other than result, else text. In both formats, lines of type result report token usage and are not
	// printed.
	Output string `json:"output,omitempty"`
}

// PromptPlaceholder is the argument of an agent's command that the prompt replaces.
const PromptPlaceholder = "{prompt}"

// The values of [TemplateAgent].Output. An empty one leaves the choice to the first line of the output.
const (
	OutputText      = "text"
	OutputJSONLines = "jsonl"
)

// AgentOutputs lists the values of [TemplateAgent].Output.
func AgentOutputs() []string { return []string{OutputText, OutputJSONLines} }

// PolicyDocuments is the built-in policy for work on documents.
const PolicyDocuments = "documents"

// PolicyNames lists the built-in policies.
func PolicyNames() []string { return []string{PolicyDocuments} }

// TemplatePolicy sets which commands callers may run. Deny wins over Allow. An empty Allow allows all.
type TemplatePolicy struct {
	// Name is a built-in policy: documents. Allow and Deny add to it.
	Name string `json:"name,omitempty"`
	// Allow and Deny are names of programs, in which * matches any characters.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}
