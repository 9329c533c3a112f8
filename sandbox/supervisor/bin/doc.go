// Package bin embeds the supervisor's program. The binaries are checked in, so that a fresh clone runs without a build step.
//
//	supervisor's source ──build.sh──► bin/supervisor-linux-{amd64,arm64} ──go:embed──► Extract ──► a file in the run folder
//
// Only the binary of the target's architecture is embedded. On other systems there is none, and the product's binary runs itself
// as the supervisor (see supervisor.Main).
//
// Extract writes a file rather than a memfd: all sandboxes of all workers on the machine then share its pages, docker can bind-mount
// it by its path, and ps shows a name. The file is named by its hash and reused, so it costs one write per machine.
package bin

//go:generate ../build.sh
