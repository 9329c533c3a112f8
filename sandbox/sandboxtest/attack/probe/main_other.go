//go:build !linux

// Command probe exists on Linux alone.
package main

func main() {}
