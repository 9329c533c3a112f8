package schemas

// Status is the state of a cell and of its NATS server.
type Status struct {
	// Server is the NATS server of the connection.
	Server ServerStatus `json:"server"`
	// Cell and Tenant are what the rest is about.
	Cell   string `json:"cell"`
	Tenant string `json:"tenant"`
	// Streams are the cell's streams and buckets. MSG and DLQ are empty until their first use creates them.
	Streams []StreamStatus `json:"streams"`
	// Log is what LOG holds of the tenant.
	Log *LogStatus `json:"log,omitempty"`
	// Records is what EVT holds of this tenant; nil where the stream does not exist.
	Records *RecordStatus `json:"records,omitempty"`
	// Workers are the cell's registered workers.
	Workers []WorkerStatus `json:"workers"`
	// Sessions counts the tenant's sessions, one a thread; Sandboxes those whose sandbox starts or runs.
	Sessions  int `json:"sessions"`
	Sandboxes int `json:"sandboxes"`
	// Owed are the tenant's pushes that failed and are tried again.
	Owed []OwedPush `json:"owed,omitempty"`
	// Processes counts the tenant's processes that were accepted and have not ended.
	Processes int `json:"processes"`
}

// ServerStatus is a NATS server.
type ServerStatus struct {
	// URL is the server's, without credentials.
	URL string `json:"url"`
	// Version is the server's.
	Version string `json:"version"`
	// RTTMS is the time of one round trip to it, in milliseconds.
	RTTMS float64 `json:"rtt_ms"`
}

// StreamStatus is how full a stream or bucket is.
type StreamStatus struct {
	// Name is the stream's.
	Name string `json:"name"`
	// Messages and Bytes are what it holds.
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	// MaxBytes is the most it may hold; 0 for no limit of its own.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// RefuseBytes is the size at which workers accept no new commands, so that the ends of those that run have room; 0 for MaxBytes.
	RefuseBytes int64 `json:"refuse_bytes,omitempty"`
	// MaxAgeMS is how long it keeps a message, in milliseconds; 0 for ever.
	MaxAgeMS int64 `json:"max_age_ms,omitempty"`
}

// TenantGrain is how finely workers report what LOG and EVT hold of a tenant: each when it has stored so small a share of the tenant's bound in
// LOG, or of EVT, since its last report.
const TenantGrain = 256

// LogStatus is how much output LOG holds, and how much it may. Beyond a bound the oldest output of the process or tenant is dropped.
type LogStatus struct {
	// MaxProcessBytes and MaxTenantBytes bound what LOG holds of one process and of one tenant; 0 for no bound.
	MaxProcessBytes int64 `json:"max_process_bytes,omitempty"`
	MaxTenantBytes  int64 `json:"max_tenant_bytes,omitempty"`
	// TenantBytes is what it holds of this tenant, by the last reports of the workers.
	TenantBytes int64 `json:"tenant_bytes"`
}

// RecordStatus is how much EVT holds of a tenant, and how much it may. Beyond the bound, the tenant's commands are refused.
type RecordStatus struct {
	// MaxTenantBytes is seven times what the tenant leaves free for records now, or the bound that was set; 0 for no bound.
	MaxTenantBytes int64 `json:"max_tenant_bytes,omitempty"`
	// TenantBytes is what it holds of this tenant, by the last reports of the workers.
	TenantBytes int64 `json:"tenant_bytes"`
}

// WorkerStatus is a registered worker.
type WorkerStatus struct {
	WorkerInfo
	// Alive reports whether its lease has not expired.
	Alive bool `json:"alive"`
}
