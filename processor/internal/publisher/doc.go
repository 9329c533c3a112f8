// Package publisher is how a worker reports: events, answers to callers and log lines. It holds the fence: a worker whose lease is
// lost reports nothing more, because another worker may own its threads.
package publisher
