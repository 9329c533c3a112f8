package client

import (
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// maxShared is how many pieces of content all transfers of a client together have under way, beyond one for each: 16 MiB.
	maxShared = 64
	// ownPiece is the size of the one piece of a transfer that sends, in bytes, while others have all shared ones.
	ownPiece = 64 << 10
)

// piece is the buffer of a piece of content.
type piece = [schemas.MaxFilePiece]byte

// sharedPieces bound the content that the transfers of a client have under way. No transfer waits for one: it goes on with its own piece, so
// that senders and receivers that pause hold up no others.
type sharedPieces struct {
	taken chan struct{}
	idle  sync.Pool // of *piece
}

func newSharedPieces() *sharedPieces { return &sharedPieces{taken: make(chan struct{}, maxShared)} }

// reserve reserves a piece, and reports false when all are taken.
func (s *sharedPieces) reserve() bool {
	select {
	case s.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

// release ends what reserve began.
func (s *sharedPieces) release() { <-s.taken }

// take reserves a piece with its buffer; nil when all are taken.
func (s *sharedPieces) take() *piece {
	if !s.reserve() {
		return nil
	}
	if p, ok := s.idle.Get().(*piece); ok {
		return p
	}
	return new(piece)
}

// give returns a piece of take; nil does nothing.
func (s *sharedPieces) give(p *piece) {
	if p != nil {
		s.idle.Put(p)
		s.release()
	}
}
