package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// FormatVersion is the version of the documented state format that is read and written.
const FormatVersion = "1.0"

// segmentedVersion is that of a state with segments: a reader of the documented format must not take its list of files for all of
// them. Any other version is refused.
const segmentedVersion = "2.0"

// The formats of what Sluice adds.
const (
	wholeFormat     = 1
	segmentedFormat = 2
)

// ErrCorrupt marks bytes that are not a state as it was written: a torn one, or one with another checksum. It is never taken
// for a state without files.
var ErrCorrupt = errors.New("state: corrupt")

// Corrupt returns an error that is [ErrCorrupt].
func Corrupt(format string, args ...any) error {
	return schemas.Errorf(schemas.CodeDamaged, "%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// timestamp is a time in Unix seconds, with an optional fraction, or the RFC 3339 string of earlier versions. Other
// values are refused.
type timestamp struct{ seconds, nanoseconds int64 }

// The seconds whose nanoseconds fit 64 bits: the years 1678 to 2262. Other times are clipped to them.
const (
	minSeconds = math.MinInt64/1_000_000_000 + 1
	maxSeconds = math.MaxInt64/1_000_000_000 - 1
)

// UnmarshalJSON implements [json.Unmarshaler].
func (t *timestamp) UnmarshalJSON(data []byte) error {
	text := string(data)
	seconds, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil:
	case text == "null":
		return nil
	case text[0] == '"':
		var at time.Time
		if err := at.UnmarshalJSON(data); err != nil || at.IsZero() { // the zero time is that of no sync
			return err
		}
		seconds, t.nanoseconds = at.Unix(), int64(at.Nanosecond())
	default:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%s is not a time in Unix seconds", Clip(text))
		}
		whole := math.Floor(f)
		seconds, t.nanoseconds = int64(max(minSeconds, min(maxSeconds, whole))), int64((f-whole)*1e9)
	}
	t.seconds = max(minSeconds, min(maxSeconds, seconds))
	return nil
}

// withNanoseconds returns t with the fraction ns, unless that is 0.
func (t timestamp) withNanoseconds(ns uint32) timestamp {
	if ns != 0 {
		t.nanoseconds = int64(min(ns, 999_999_999))
	}
	return t
}

func (t timestamp) unixNano() int64 { return t.seconds*1e9 + t.nanoseconds }

type stateJSON struct {
	Version  string     `json:"version"`
	SyncedAt timestamp  `json:"last_synced_at"`
	Files    []fileJSON `json:"files"`
	Sluice   *struct {
		Format     int        `json:"format"`
		SyncedNS   uint32     `json:"last_synced_ns"`
		Layout     Layout     `json:"layout"`
		ID         string     `json:"id"`
		Parent     string     `json:"parent"` // of earlier versions, without a lineage
		Lineage    []string   `json:"lineage"`
		Floor      string     `json:"floor"`
		Remote     string     `json:"remote"`
		Generation uint64     `json:"generation"`
		Count      uint64     `json:"count"`
		Objects    []objJSON  `json:"objects"`
		Folders    []nodeJSON `json:"folders"`
		Symlinks   []nodeJSON `json:"symlinks"`
		Pending    []nodeJSON `json:"pending"`
		Dropping   []nodeJSON `json:"dropping"`

		Segments       []segmentJSON `json:"segments"`
		SegmentObjects []objJSON     `json:"segment_objects"`
		Removed        []nodeJSON    `json:"removed"`
	} `json:"sluice"`
}

type objJSON struct {
	SHA256     string `json:"sha256"`
	Size       int64  `json:"size"`
	Generation uint64 `json:"generation"`
	Push       string `json:"push"`
}

type nodeJSON struct {
	Path         string `json:"path"`
	PathBase64   string `json:"path_base64"`
	Mode         string `json:"mode"`
	Target       string `json:"target"`
	TargetBase64 string `json:"target_base64"`
	Over         string `json:"over"`
}

type fileJSON struct {
	Path       string    `json:"path"`
	PathBase64 string    `json:"path_base64"`
	Checksum   string    `json:"checksum"`
	Size       int64     `json:"size"`
	Modified   timestamp `json:"modified_at"`
	ModifiedNS uint32    `json:"modified_ns"`
	Mode       string    `json:"mode"`
	Digest     string    `json:"digest"`
	Sparse     bool      `json:"sparse"`
	ETag       string    `json:"etag"`
	At         []int64   `json:"at"`
	Chunks     []uint32  `json:"chunks"`
}

// Decode reads a whole state and checks everything in it, since its writer may be hostile: no path leaves the root or passes
// through a file or a symlink, no path occurs twice, and sizes and locations are consistent. Folders that are not listed are
// implied, with mode 0755: another tool writes none.
//
// Errors: invalid_argument for an unknown version and a broken rule, too_large for what exceeds a limit, and damaged, which is
// [ErrCorrupt], where the bytes are not a state as it was written, or only its root.
func Decode(data []byte, limits Limits) (*State, error) {
	r, err := DecodeRoot(data, limits)
	if err != nil {
		return nil, err
	}
	if len(r.state.Segments.List) > 0 {
		return nil, Corrupt("it is a part of one, whose segments are in the store")
	}
	return r.State()
}

// decodeListed reads what a state lists itself, and which paths it lists as removed from its segments.
func decodeListed(data []byte, limits Limits) (s *State, removed []string, err error) {
	if err := checkSize(data, limits); err != nil {
		return nil, nil, err
	}
	if err := checkSum(data); err != nil {
		return nil, nil, err
	}
	var raw stateJSON
	if err := json.Unmarshal(data, &raw); err != nil {
		if _, torn := errors.AsType[*json.SyntaxError](err); torn {
			return nil, nil, Corrupt("%v", err)
		}
		return nil, nil, schemas.Errorf(schemas.CodeInvalidArgument, "state: %s", Clip(err.Error()))
	}
	if raw.Version == "" && raw.Files == nil {
		return nil, nil, Corrupt("it has neither version nor files")
	}
	if err := raw.checkVersion(); err != nil {
		return nil, nil, err
	}
	s = &State{}
	syncedNS := uint32(0)
	entries := len(raw.Files)
	if x := raw.Sluice; x != nil {
		entries += len(x.Folders) + len(x.Symlinks) + len(x.Dropping)
		s.Layout, s.ID, s.Lineage, s.Floor, s.Remote = x.Layout, x.ID, x.Lineage, x.Floor, x.Remote
		if x.Parent != "" && len(x.Lineage) == 0 {
			s.Lineage = []string{x.Parent}
		}
		s.Generation, s.Count, syncedNS = x.Generation, x.Count, x.SyncedNS
	}
	if entries > limits.Entries {
		return nil, nil, schemas.Errorf(schemas.CodeTooLarge, "state: %d entries, the limit is %d", entries, limits.Entries)
	}
	if raw.SyncedAt != (timestamp{}) {
		s.SyncedAt = time.Unix(0, raw.SyncedAt.withNanoseconds(syncedNS).unixNano()).UTC()
	}
	s.Nodes = make([]Node, 0, entries)
	if err := s.fill(&raw); err != nil {
		return nil, nil, err
	}
	removed, err = s.fillSegments(&raw)
	return s, removed, err
}

// checkVersion refuses the states of later versions, and segments in a state of the documented version.
func (raw *stateJSON) checkVersion() error {
	version, format := FormatVersion, wholeFormat
	x := raw.Sluice
	if x != nil && len(x.Segments) > 0 {
		version, format = segmentedVersion, segmentedFormat
	}
	if raw.Version != version {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			"state: unknown version %q, this program reads %q: update Sluice", Clip(raw.Version), version)
	}
	if x != nil && (x.Format != format || (x.Layout != Packed && x.Layout != Plain)) {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			"state: unknown format %d with layout %q: update Sluice, a newer version may have written it", x.Format, Clip(string(x.Layout)))
	}
	return nil
}

func objectsOf(raw []objJSON) ([]Object, error) {
	objects := make([]Object, len(raw))
	for i, o := range raw {
		objects[i] = Object{Size: o.Size, Generation: o.Generation, Push: o.Push}
		if !unhex(objects[i].Digest[:], o.SHA256) {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: %q is not a SHA-256", i, Clip(o.SHA256))
		}
	}
	return objects, nil
}

// checkSum checks the checksum of a state as Sluice writes it. A tool that decodes and encodes a state moves or drops the line,
// and such a state is accepted without: see ADR 0040.
func checkSum(data []byte) error {
	at := len(data) - len(sumOpen) - hex.EncodedLen(sha256.Size) - len(sumClose)
	if at < 0 || !bytes.HasPrefix(data[at:], []byte(sumOpen)) || !bytes.HasSuffix(data, []byte(sumClose)) {
		return nil
	}
	if want := appendSum(nil, data[:at]); !bytes.Equal(data[at:], want) {
		return Corrupt("its checksum does not match")
	}
	return nil
}

// addParents adds the folders that the state's paths imply and that it does not list, as another tool leaves them out.
func (s *State) addParents(limit int) error {
	var missing []Node
	var above []string // the node before and the folders above it, the root's first
	for i := range s.Nodes {
		path, top := s.Nodes[i].Path, ""
		if len(path) > MaxPath {
			continue // Check refuses it
		}
		for len(above) > 0 && !Within(path, above[len(above)-1]) {
			above = above[:len(above)-1]
		}
		known := len(above)
		if known > 0 {
			top = above[known-1]
		}
		if Parent(path) != top {
			if err := CheckPath(path); err != nil {
				return err // before a folder of it is refused in its place
			}
		}
		for dir := Parent(path); dir != top; dir = Parent(dir) {
			if len(s.Nodes)+len(missing) >= limit {
				return schemas.Errorf(schemas.CodeTooLarge, "state: its files and their folders are more than %d entries", limit)
			}
			missing = append(missing, Node{Path: dir, Kind: Dir, Mode: 0o755, Hashed: true})
			above = append(above, dir)
		}
		slices.Reverse(above[known:])
		above = append(above, path)
	}
	if len(missing) > 0 {
		s.Nodes = append(s.Nodes, missing...)
		SortNodes(s.Nodes)
	}
	return nil
}

func (s *State) fill(raw *stateJSON) error {
	if x := raw.Sluice; x != nil {
		var err error
		if s.Objects, err = objectsOf(x.Objects); err != nil {
			return err
		}
		for _, d := range x.Folders {
			n := Node{Path: d.Path, Kind: Dir, Hashed: true}
			if err := fillNode(&n, d.PathBase64, d.Mode, 0o755); err != nil {
				return err
			}
			s.Nodes = append(s.Nodes, n)
		}
		for _, l := range x.Symlinks {
			n := Node{Path: l.Path, Kind: Symlink, Target: l.Target, Hashed: true}
			if err := fillNode(&n, l.PathBase64, "", 0); err != nil {
				return err
			}
			if err := unbase64(&n.Target, l.TargetBase64); err != nil {
				return err
			}
			s.Nodes = append(s.Nodes, n)
		}
	}
	for i := range raw.Files {
		f := &raw.Files[i]
		n := Node{Path: f.Path, Kind: File, Size: f.Size, Sparse: f.Sparse, Modified: f.Modified.withNanoseconds(f.ModifiedNS).unixNano(), Hashed: true}
		if err := fillNode(&n, f.PathBase64, f.Mode, 0o644); err != nil {
			return err
		}
		if !unhex(n.MD5[:], f.Checksum) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %q is not an MD5 checksum", Clip(n.Path), Clip(f.Checksum))
		}
		if f.Digest != "" && !unhex(n.Digest[:], f.Digest) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %q is not a digest", Clip(n.Path), Clip(f.Digest))
		}
		switch {
		case len(f.At) == 2 && f.At[0] >= 0 && f.At[0] < int64(len(s.Objects)):
			n.At = Location{Objects: []uint32{uint32(f.At[0])}, Offset: f.At[1]}
		case len(f.At) != 0:
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: its location is not in the state", Clip(n.Path))
		case len(f.Chunks) > 0:
			n.At = Location{Objects: f.Chunks}
		}
		if f.ETag != "" {
			s.SetETag(&n, f.ETag)
		}
		s.Nodes = append(s.Nodes, n)
	}
	SortNodes(s.Nodes)
	return s.fillPending(raw)
}

func (s *State) fillPending(raw *stateJSON) error {
	if raw.Sluice == nil {
		return nil
	}
	for _, p := range raw.Sluice.Pending {
		n := Pending{Path: p.Path, Over: p.Over}
		if err := unbase64(&n.Path, p.PathBase64); err != nil {
			return err
		}
		s.Pending = append(s.Pending, n)
	}
	for _, p := range raw.Sluice.Dropping {
		path := p.Path
		if err := unbase64(&path, p.PathBase64); err != nil {
			return err
		}
		s.Dropping = append(s.Dropping, path)
	}
	slices.SortFunc(s.Pending, func(a, b Pending) int { return ComparePaths(a.Path, b.Path) })
	slices.SortFunc(s.Dropping, ComparePaths)
	return nil
}

func fillNode(n *Node, path64, mode string, defaultMode uint16) error {
	if err := unbase64(&n.Path, path64); err != nil {
		return err
	}
	n.Mode = defaultMode
	if mode != "" {
		m, err := strconv.ParseUint(mode, 8, 16)
		if err != nil || m > 0o777 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %q is not a mode", Clip(n.Path), Clip(mode))
		}
		n.Mode = uint16(m)
	}
	return nil
}

func unbase64(into *string, s string) error {
	if s == "" {
		return nil
	}
	exact, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q is not base64", Clip(s))
	}
	*into = string(exact)
	return nil
}

func unhex(into []byte, s string) bool {
	if len(s) != hex.EncodedLen(len(into)) {
		return false
	}
	_, err := hex.Decode(into, []byte(s))
	return err == nil
}
