// Package dockertest gives tests a Docker engine and images, without access to a registry.
//
//	test ──► Image(t) ──► engine answers? ──no──► CI: fail; elsewhere: skip, with the command that installs one
//	                         └──yes──► import of a root with busybox, or also with bash, python3 and jq
//
// Engine gives benchmarks the engine without Sluice.
package dockertest
