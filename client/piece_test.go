package client

import "testing"

// What transfers hold is bounded, and comes back.
func TestSharedPiecesAreBounded(t *testing.T) {
	s := newSharedPieces()
	var held []*piece
	for p := s.take(); p != nil; p = s.take() {
		held = append(held, p)
	}
	if len(held) != maxShared {
		t.Errorf("took %d pieces, want %d", len(held), maxShared)
	}
	if s.reserve() {
		t.Error("reserved a piece beyond those")
	}
	s.give(nil)
	s.give(held[0])
	if !s.reserve() {
		t.Error("a piece that was given back cannot be reserved")
	}
}
