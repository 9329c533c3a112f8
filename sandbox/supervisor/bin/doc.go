// Package bin holds the supervisor as a program, checked in, so that a fresh clone runs without a build step.
//
//	supervisor's source ──build.sh──► bin/supervisor-linux-{amd64,arm64} ──go:embed──► Extract ──► a file in the run folder
//
// Only the binary of the target's own architecture is embedded; on other systems there is none, and the product's own
// binary runs itself as the supervisor (see supervisor.Main).
//
// The binary is extracted to a file rather than to a memfd: its pages are then shared by every sandbox of every worker on
// the machine, docker can bind-mount it into a container by its path, and ps shows a name. A file costs one write per
// machine, since it is named by its hash and reused where it is there already.
package bin

//go:generate ../build.sh
