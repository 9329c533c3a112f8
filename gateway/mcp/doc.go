// Package mcp serves the threads of a client as tools and resources of the Model Context Protocol.
//
//	agent ──stdio──► Run ─────┐
//	agent ──HTTP───► Handler ─┴─► tools, resources ──► client.Client ──► threads
//
// Everything that a tool returns is bounded, and has the offset to read on at. What commands print and files contain is data: it is a
// string in JSON, and is never interpreted. A command that run_command runs ends with its call: when the call is canceled, or its caller
// has left. What start_process starts goes on.
package mcp
