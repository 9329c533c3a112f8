// Package work holds what every part of a worker uses to do work beside its caller: background functions, a mutex for each key,
// the timeouts, and the share of places that one tenant may take.
package work
