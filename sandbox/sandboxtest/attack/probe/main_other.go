//go:build !linux

// Command probe is for Linux alone.
package main

func main() {}
