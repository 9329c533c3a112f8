// Command schemagen generates the JSON Schemas of the contract from its Go types, their doc comments and the limits that
// validation uses, so that these three stay consistent. `go generate ./schemas` runs it.
//
//	schemas/*.go ──(go/ast)──► doc comments ─┐
//	schemas types ──(reflect)──► shapes ─────┼──► schemas/json/*.json
//	rules.go ──► limits, patterns, enums ────┘
package main
