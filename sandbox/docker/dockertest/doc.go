// Package dockertest gives tests what they need of a Docker engine where no registry can be reached: the engine itself, or
// the test's end, and an image made on the spot.
//
//	test ──► Image(t) ──► engine answers? ──no──► CI: fail; elsewhere: skip, with the command that brings one
//	                         └──yes──► import of a root that holds busybox alone, or bash, python3 and jq as well
//
// Engine is the engine itself for measurements, which are no tests.
package dockertest
