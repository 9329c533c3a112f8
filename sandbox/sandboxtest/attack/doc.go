// Package attack is the suite of attacks that every provider that isolates withstands. Each says what must happen, and after each
// the host and a neighbouring sandbox of the same provider are looked at: they must be as they were.
//
//	provider's test ──► Run(t, Factory) ──► attacker's sandbox ──► sh, and probe: one program that tries calls and says what came
//	                                    ──► neighbour's sandbox, canaries on the host ──► unharmed?
//
// What only reads, or tries a few calls, runs in every `go test`. What loads the machine (fork and memory bombs, a gigabyte of
// output) runs where Factory.Hard says so, which `make attack` does, and only after a small count has shown that the limit it
// relies on holds.
package attack
