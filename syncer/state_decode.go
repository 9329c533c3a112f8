package syncer

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Limits are the most that a state may ask of the machine that reads it. The zero value has the defaults.
type Limits struct {
	StateBytes int64 // the size of a state; default 256 MiB
	Entries    int   // files, folders and symlinks together; default 500,000
	FileBytes  int64 // one file; default 64 GiB
	TotalBytes int64 // all files; default 1 TiB
}

func (l Limits) withDefaults() Limits {
	if l.StateBytes <= 0 {
		l.StateBytes = 256 << 20
	}
	if l.Entries <= 0 {
		l.Entries = 500_000
	}
	if l.FileBytes <= 0 {
		l.FileBytes = 64 << 30
	}
	if l.TotalBytes <= 0 {
		l.TotalBytes = 1 << 40
	}
	return l
}

type stateJSON struct {
	Version  string     `json:"version"`
	SyncedAt time.Time  `json:"last_synced_at"`
	Files    []fileJSON `json:"files"`
	Sluice   *struct {
		Format     int        `json:"format"`
		Layout     Layout     `json:"layout"`
		ID         string     `json:"id"`
		Parent     string     `json:"parent"`
		Floor      string     `json:"floor"`
		Remote     string     `json:"remote"`
		Generation uint64     `json:"generation"`
		Count      uint64     `json:"count"`
		Objects    []objJSON  `json:"objects"`
		Folders    []nodeJSON `json:"folders"`
		Symlinks   []nodeJSON `json:"symlinks"`
		Pending    []nodeJSON `json:"pending"`
		Dropping   []nodeJSON `json:"dropping"`
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
	Modified   time.Time `json:"modified_at"`
	Mode       string    `json:"mode"`
	Digest     string    `json:"digest"`
	Sparse     bool      `json:"sparse"`
	At         []int64   `json:"at"`
	Chunks     []uint32  `json:"chunks"`
}

// DecodeState reads a state and checks everything in it, since whoever wrote it need not be a friend: no path leaves
// the root, none passes through a file or a symlink, none stands twice, sizes and locations hold together.
//
// Errors: invalid_argument for an unknown version and for whatever breaks a rule, too_large for what is over a limit,
// and one that is [ErrCorrupt] where the bytes are no state at all.
func DecodeState(data []byte, limits Limits) (*State, error) {
	limits = limits.withDefaults()
	if int64(len(data)) > limits.StateBytes {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "state: %d bytes, the limit is %d", len(data), limits.StateBytes)
	}
	if err := countState(data, limits); err != nil {
		return nil, err
	}
	var raw stateJSON
	if err := json.Unmarshal(data, &raw); err != nil {
		if _, torn := errors.AsType[*json.SyntaxError](err); torn {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%w: %v", ErrCorrupt, err)
		}
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "state: %s", clip(err.Error()))
	}
	if raw.Version == "" && raw.Files == nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "%w: neither version nor files", ErrCorrupt)
	}
	if raw.Version != StateVersion {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"state: version %q is not known, this program reads %q", clip(raw.Version), StateVersion)
	}
	s := &State{SyncedAt: raw.SyncedAt}
	entries := len(raw.Files)
	if x := raw.Sluice; x != nil {
		if x.Format != 1 || (x.Layout != Packed && x.Layout != Plain) {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument,
				"state: format %d with layout %q is not known; a newer Sluice may have written it", x.Format, clip(string(x.Layout)))
		}
		entries += len(x.Folders) + len(x.Symlinks) + len(x.Dropping)
		s.Layout, s.ID, s.Parent, s.Floor, s.Remote = x.Layout, x.ID, x.Parent, x.Floor, x.Remote
		s.Generation, s.Count = x.Generation, x.Count
	}
	if entries > limits.Entries {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "state: %d entries, the limit is %d", entries, limits.Entries)
	}
	s.Nodes = make([]Node, 0, entries)
	if err := s.fill(&raw); err != nil {
		return nil, err
	}
	if err := s.check(limits); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *State) fill(raw *stateJSON) error {
	if x := raw.Sluice; x != nil {
		s.Objects = make([]Object, len(x.Objects))
		for i, o := range x.Objects {
			s.Objects[i] = Object{Size: o.Size, Generation: o.Generation, Push: o.Push}
			if !unhex(s.Objects[i].Digest[:], o.SHA256) {
				return schemas.Errorf(schemas.CodeInvalidArgument, "state: object %d: %q is no SHA-256", i, clip(o.SHA256))
			}
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
		n := Node{Path: f.Path, Kind: File, Size: f.Size, Sparse: f.Sparse, Modified: f.Modified.UnixNano(), Hashed: true}
		if err := fillNode(&n, f.PathBase64, f.Mode, 0o644); err != nil {
			return err
		}
		if !unhex(n.MD5[:], f.Checksum) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %q is no MD5 checksum", clip(n.Path), clip(f.Checksum))
		}
		if f.Digest != "" && !unhex(n.Digest[:], f.Digest) {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %q is no digest", clip(n.Path), clip(f.Digest))
		}
		switch {
		case len(f.At) == 2 && f.At[0] >= 0 && f.At[0] < int64(len(s.Objects)):
			n.At = Location{Objects: []uint32{uint32(f.At[0])}, Offset: f.At[1]}
		case len(f.At) != 0:
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: its location is not in the state", clip(n.Path))
		case len(f.Chunks) > 0:
			n.At = Location{Objects: f.Chunks}
		}
		s.Nodes = append(s.Nodes, n)
	}
	sortNodes(s.Nodes)
	return s.fillUnsettled(raw)
}

func (s *State) fillUnsettled(raw *stateJSON) error {
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
	slices.SortFunc(s.Pending, func(a, b Pending) int { return comparePaths(a.Path, b.Path) })
	slices.SortFunc(s.Dropping, comparePaths)
	return nil
}

func sortNodes(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int { return comparePaths(a.Path, b.Path) })
}

func fillNode(n *Node, path64, mode string, otherwise uint16) error {
	if err := unbase64(&n.Path, path64); err != nil {
		return err
	}
	n.Mode = otherwise
	if mode != "" {
		m, err := strconv.ParseUint(mode, 8, 16)
		if err != nil || m > 0o777 {
			return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q: %q is no mode", clip(n.Path), clip(mode))
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
		return schemas.Errorf(schemas.CodeInvalidArgument, "state: %q is no base64", clip(s))
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

// clip keeps a hostile name from filling a log.
func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
