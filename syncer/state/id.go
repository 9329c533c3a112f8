package state

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"
)

// Key prefixes of what Sluice keeps in the store under the workspace's prefix, beside the state at [ReservedName].
const (
	ObjectPrefix  = ReservedName + ".d/objects/"
	VersionPrefix = ReservedName + ".d/versions/"
	ProbePrefix   = ReservedName + ".d/probe/"
)

// Key returns the key of the stored object.
func (o *Object) Key() string {
	key := ObjectPrefix + strconv.FormatUint(o.Generation, 36) + "/" + hex.EncodeToString(o.Digest[:])
	if o.Push != "" {
		key += "-" + o.Push
	}
	return key
}

// NewID names a state by its time, and later than the state before whatever the clock says: the order of IDs is the
// order of commits.
func NewID(now time.Time, before string) string {
	now = now.UTC()
	if t, err := IDTime(before); err == nil && !now.After(t) {
		now = t.Add(time.Microsecond)
	}
	return now.Format(idLayout) + "-" + randomHex(4)
}

const idLayout = "20060102T150405.000000Z"

// IDTime returns the time in a state's ID.
func IDTime(id string) (time.Time, error) {
	return time.Parse(idLayout, id[:min(len(idLayout), len(id))])
}

// RandomName returns a name of 16 hex digits that nothing else has: of a push or of a temporary file.
func RandomName() string { return randomHex(8) }

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	_, _ = rand.Read(random) // never fails: see crypto/rand
	return hex.EncodeToString(random)
}
