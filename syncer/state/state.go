package state

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Layout is how content is kept in the store.
type Layout string

// The layouts.
const (
	// Packed keeps content in immutable objects named by their SHA-256, small files together in packs. It has
	// versions, and a reader never sees a mixed tree.
	Packed Layout = "packed"
	// Plain keeps each file as an object under its own path, for other tools to read. It has no versions.
	Plain Layout = "plain"
)

// State is a workspace at one time: the documented file format and what Sluice stores beside it. The format is
// {version, last_synced_at, files [{path, checksum, size, modified_at}]}. Readers that know that format alone ignore every
// further field; folders and symlinks are not in files for their sake.
type State struct {
	SyncedAt time.Time
	Nodes    []Node // in walk order, each path once

	Layout     Layout   // "" for a state that another tool wrote
	ID         string   // the version's name: its time and a random suffix
	Lineage    []string // the IDs of the last states before it, the newest first; "" for one of another tool
	Generation uint64   // incremented by each garbage collection
	Floor      string   // versions with a lower ID are removed or about to be
	Count      uint64   // number of states so far, this one included
	Objects    []Object // what the nodes' locations refer to
	Remote     string   // in the local state: the place of the last sync
	Segments   Segments // of a long state in the store

	// ETags has, by path, the tokens of files of the plain layout whose token is not their MD5: objects that were stored in parts.
	ETags map[string]string

	// What a committed push of the plain layout still has to do: files to write under their own paths, and paths whose
	// objects to delete. Both in walk order.
	Pending  []Pending
	Dropping []string
}

// Object is one immutable object of the packed layout: a pack of small files, or a chunk of a large one.
type Object struct {
	Digest     Digest // of all its bytes
	Size       int64  // bytes
	Generation uint64 // of the state under which it was stored; part of its key
	// Push is set in the plain layout: the random name of the push that stored the object and deletes it once the files
	// are under their own paths. It is part of the key, so no other push relies on the object.
	Push string
}

// Pending is a file of the plain layout whose content is stored in packs and not yet under its own path.
type Pending struct {
	Path string
	Over string // the token of the object that it replaces there; "" when there is none
}

// SetETag records the token of a file's object, which is forgotten where it is the content's MD5.
func (s *State) SetETag(n *Node, token string) {
	if token == "" || strings.Trim(token, `"`) == hex.EncodeToString(n.MD5[:]) {
		delete(s.ETags, n.Path)
		return
	}
	if s.ETags == nil {
		s.ETags = map[string]string{}
	}
	s.ETags[n.Path] = token
}

// Published reports whether every file is under its own path.
func (s *State) Published() bool { return len(s.Pending)+len(s.Dropping) == 0 }

// MaxLineage is how many states before it a state names.
const MaxLineage = 32

// Follows reports whether s can be a later state than was, by their IDs, lineage and generations. It cannot where the store was
// rolled back, also when it was written to afterwards, and where the workspace was begun anew.
func (s *State) Follows(was *State) bool {
	switch {
	case s.ID == "" || was.ID == "": // another tool wrote one of them
		return true
	case s.ID == was.ID:
		return s.Generation >= was.Generation
	case s.ID < was.ID:
		return false
	case slices.Contains(s.Lineage, was.ID):
		return s.Generation >= was.Generation
	case slices.Contains(s.Lineage, ""): // another tool has written since
		return true
	case s.Count == uint64(len(s.Lineage)+1): // the lineage is complete
		return false
	}
	return len(s.Lineage) == 0 || was.ID < s.Lineage[len(s.Lineage)-1]
}

// Search returns the index of the path in Nodes, or where it would be inserted.
func (s *State) Search(path string) (int, bool) {
	return slices.BinarySearchFunc(s.Nodes, path, func(n Node, p string) int { return ComparePaths(n.Path, p) })
}

// ForgetContent removes the objects, every location in them, and the segments, which mean nothing on disk.
func (s *State) ForgetContent() {
	s.Objects, s.Segments = nil, Segments{}
	for i := range s.Nodes {
		s.Nodes[i].At = Location{}
	}
}

// CompactObjects drops the objects that no node refers to and renumbers the rest.
func (s *State) CompactObjects() {
	number := make([]uint32, len(s.Objects))
	for i := range s.Nodes {
		for _, o := range s.Nodes[i].At.Objects {
			number[o] = 1
		}
	}
	kept := make([]Object, 0, len(s.Objects))
	for i := range s.Objects {
		if number[i] != 0 {
			number[i] = uint32(len(kept))
			kept = append(kept, s.Objects[i])
		}
	}
	if len(kept) == len(s.Objects) {
		s.Objects = kept
		return
	}
	s.Objects = kept
	for i := range s.Nodes {
		at := &s.Nodes[i].At
		if len(at.Objects) == 0 {
			continue
		}
		renumbered := make([]uint32, len(at.Objects))
		for k, o := range at.Objects {
			renumbered[k] = number[o]
		}
		at.Objects = renumbered
	}
}

// Key prefixes of what Sluice keeps in the store under the workspace's prefix, beside the state at [ReservedName].
const (
	ObjectPrefix  = ReservedName + ".d/objects/"
	VersionPrefix = ReservedName + ".d/versions/"
	ProbePrefix   = ReservedName + ".d/probe/"
	DamagedPrefix = ReservedName + ".d/damaged/" // states that were replaced because they were damaged
)

// GenerationPrefix returns what the keys of a generation's objects begin with.
func GenerationPrefix(generation uint64) string {
	return ObjectPrefix + strconv.FormatUint(generation, 36) + "/"
}

// KeyGeneration returns the generation of the object at a key; ok is false for a key that is none of an object.
func KeyGeneration(key string) (generation uint64, ok bool) {
	digits, _, ok := strings.Cut(strings.TrimPrefix(key, ObjectPrefix), "/")
	generation, err := strconv.ParseUint(digits, 36, 64)
	return generation, ok && err == nil
}

// Key returns the key of the stored object.
func (o *Object) Key() string {
	key := GenerationPrefix(o.Generation) + hex.EncodeToString(o.Digest[:])
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

// IsID reports whether id can name a state. It becomes part of keys.
func IsID(id string) bool {
	stamp, random, ok := strings.Cut(id, "-")
	_, err := time.Parse(idLayout, stamp)
	return ok && err == nil && len(stamp) == len(idLayout) && random != "" && isPushName(random)
}

// RandomName returns a name of 16 hex digits that nothing else has: of a push or of a temporary file.
func RandomName() string { return randomHex(8) }

// IsRandomName reports whether s can be such a name. It becomes part of keys.
func IsRandomName(s string) bool { return len(s) == 16 && isPushName(s) }

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	_, _ = rand.Read(random) // never fails: see crypto/rand
	return hex.EncodeToString(random)
}
