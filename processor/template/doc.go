// Package template reads templates: the built-in ones, and those in a folder of YAML files.
//
//	*.yaml ──(yaml.v3 nodes)──► decode ──► schemas.Template ──► Validate ──► Store ──► the worker
//	                              └── line and path of each field ──► agents.yaml:12: hooks.cold_start[0].timeout: …
//
// The fields are those of [schemas.Template] by their JSON names. A field in milliseconds may be written as a duration, without
// _ms (timeout: 30s). A field in bytes may be written with a unit, without _bytes (memory: 512MiB). Unknown, repeated and empty
// fields and wrong types are refused with their line. So are YAML aliases, which could expand a small file without bound.
package template
