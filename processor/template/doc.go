// Package template gives workers their recipes for sessions: those that are built in, and those of a folder of YAML files.
//
//	*.yaml ──(yaml.v3 nodes)──► decode ──► schemas.Template ──► Validate ──► Store ──► the worker
//	                              └── line and path of each field ──► agents.yaml:12: hooks.cold_start[0].timeout: …
//
// The fields are those of [schemas.Template] by their names in JSON. A field in milliseconds may be written without _ms and as a
// duration (timeout: 30s), one in bytes without _bytes and with a unit (memory: 512MiB). What is not known, given twice, empty
// or of another kind is refused with its line, and so are anchors' aliases: nothing in these files is worth a bomb.
package template
