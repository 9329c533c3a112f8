package userids

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// base is the first id: above the range that systemd gives to containers (524288 to 1878982655), and below the ids that are negative
	// as a signed number.
	base      = 0x70000000
	blockSize = 4096
	blocks    = 0x0ff00000 / blockSize
)

// Block is the 4,096 user ids of a provider. Each is also the id of a group.
type Block struct {
	first int

	mu   sync.Mutex
	used map[int]bool
}

// New returns the block of a provider's run folder: the same after a restart, and another than that of any other run folder that exists on
// this machine. There are 65,280. Where /run cannot be written, as in a container of the worker's own, another folder may have the same one
// by chance. Only root may call it.
func New(runDir string) *Block {
	block, err := claim(claims, runDir)
	if err != nil {
		block = preferred(runDir)
	}
	return newBlock(block)
}

func newBlock(number int) *Block {
	return &Block{first: base + number*blockSize, used: make(map[int]bool)}
}

// preferred is the block that a run folder gets unless another one has it.
func preferred(runDir string) int {
	sum := sha256.Sum256([]byte(runDir))
	return int(binary.LittleEndian.Uint32(sum[:])) % blocks
}

// Allocate returns an unused id: preferred, if that is one. Errors: limit_exceeded.
func (b *Block) Allocate(preferred int) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if preferred >= b.first && preferred < b.first+blockSize && !b.used[preferred] {
		b.used[preferred] = true
		return preferred, nil
	}
	for id := b.first; id < b.first+blockSize; id++ {
		if !b.used[id] {
			b.used[id] = true
			return id, nil
		}
	}
	return 0, schemas.Errorf(schemas.CodeLimitExceeded, "all %d user ids of this run folder are in use: terminate a sandbox, or use another run folder", blockSize)
}

// Reserve marks an id as used: that of a sandbox which an earlier process left.
func (b *Block) Reserve(id int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[id] = true
}

// Release makes an id free again, once no process has it.
func (b *Block) Release(id int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.used, id)
}

// Used is how many ids are in use.
func (b *Block) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.used)
}
