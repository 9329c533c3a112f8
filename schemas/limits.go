package schemas

// Limits of commands and control requests. Every reader of the contract may rely on them.
const (
	// MaxCommandBytes is the largest encoded command, in bytes. Headers, and the copy in the accepted record, then still fit
	// into NATS's default payload limit of 1 MiB, which Sluice does not require anyone to raise.
	MaxCommandBytes = 768 << 10
	// MaxControlBytes is the largest JSON body of a control or place request, in bytes.
	MaxControlBytes = 64 << 10
	// MaxIDLength is the longest id, in bytes. An id is one token of a NATS subject and part of file names in the data folder.
	MaxIDLength = 128
	// MaxKeyBytes is the longest idempotency key, in bytes.
	MaxKeyBytes = 256
	// MaxPathBytes is the longest command, working directory or path, in bytes: Linux's PATH_MAX. Records repeat the command,
	// and must fit into a NATS message.
	MaxPathBytes = 4096
	// MaxImageBytes is the longest name of an image, in bytes.
	MaxImageBytes = 512
	// MaxTimeoutMS is the longest timeout, grace or lifetime, in milliseconds: 30 days.
	MaxTimeoutMS int64 = 30 * 24 * 3600 * 1000
	// DefaultOutputLimit is the amount of each stream that a result keeps, in bytes.
	DefaultOutputLimit int64 = 1 << 20
	// MaxOutputLimit is the most that a caller may ask a result to keep of each stream, in bytes.
	MaxOutputLimit int64 = 64 << 20
	// MaxRecordOutput is the most of each stream that the record of an end has, in bytes of its JSON. The log has the rest.
	MaxRecordOutput = 4 << 10
	// MaxPromptBytes is the longest prompt, and the longest text of a stored message, in bytes. The rest of the command and of
	// the message's record still fit into a NATS message.
	MaxPromptBytes = 512 << 10
	// MaxUserBytes is the longest name of a user, in bytes.
	MaxUserBytes = 256
	// MaxTags is the number of tags that a session may have.
	MaxTags = 32
	// MaxTagBytes is the longest name and the longest value of a tag, in bytes.
	MaxTagBytes = 256
	// MaxLabels is the number of labels that a command may have, MaxLabelName the longest name and MaxLabelBytes the longest value of one,
	// in bytes. Each event of the command repeats them.
	MaxLabels     = 16
	MaxLabelName  = 64
	MaxLabelBytes = 256
	// MaxTraceState is the longest trace state, in bytes: what W3C Trace Context asks every system to pass on.
	MaxTraceState = 512
	// MaxShownArgs is the size of the arguments that records and results repeat, in bytes; see [ShownArgs].
	MaxShownArgs = 4 << 10
	// MaxHookTimeoutMS is the longest timeout of a hook, in milliseconds: 24 hours.
	MaxHookTimeoutMS int64 = 24 * 3600 * 1000
)

// Limits of templates. They are far above what people write, and keep a template within one NATS message.
const (
	maxDescriptionBytes = 1 << 10
	maxPatternBytes     = 256 // of a policy's pattern, a hook's subject and a secret's variable
	maxHookNameBytes    = 256
	maxHooks            = 32   // of one phase
	maxEntries          = 256  // of env and of secrets
	maxPatterns         = 1024 // of allow and of deny
	maxWords            = 256  // of a command
)

// Limits of a sandbox.
const (
	// MaxCPUs is the most CPUs.
	MaxCPUs = 4096
	// MaxPIDs is the most processes and threads. The kernel refuses more than 4,194,304, of which some are for the supervisor.
	MaxPIDs = 4_000_000
	// The least of each limit: less is too little to run anything.
	MinMemoryBytes = 16 << 20
	MinTmpBytes    = 4096
	MinCPUs        = 0.01
	MinPIDs        = 16
	MinOpenFiles   = 16
)

// Limits of what an error repeats of its input, in bytes: an error travels in an event, which must fit into a NATS message.
const (
	maxErrorPath    = 200
	maxErrorMessage = 600
)
