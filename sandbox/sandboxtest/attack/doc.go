// Package attack is the suite of attacks that every isolating provider withstands. Each case states what must happen. After each case
// the suite checks that the host and a neighbouring sandbox of the same provider are unchanged.
//
//	provider's test ──► Run(t, Factory) ──► attacker's sandbox ──► sh, and probe: a program that tries calls and prints the results
//	                                    ──► neighbour's sandbox, canaries on the host ──► unharmed?
//
// Cases that only read, or try a few calls, run in every `go test`. Cases that load the machine (fork and memory bombs, a gigabyte of
// output) run with Factory.Load, which `make attack` sets, and only after a small count has shown that the limit they rely on is
// enforced. Then the memory of the process with the provider is bounded in every case, the time of a neighbour's commands in those that
// load the machine, and Factory.Table gets a line for each.
package attack
