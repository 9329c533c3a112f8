// Package work holds what every part of a worker uses to do work beside its caller: background functions, a mutex for each key,
// and the timeouts.
package work
