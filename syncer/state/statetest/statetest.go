package statetest

import (
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/syncer/state"
)

// File returns a file with the content data.
func File(path, data string) state.Node {
	return state.Node{Path: path, Kind: state.File, Mode: 0o644, Size: int64(len(data)), MD5: md5.Sum([]byte(data)),
		Digest: sha256.Sum256([]byte(data)), Hashed: true}
}

// Tree draws a tree. Its names come from a small alphabet, so that the paths of two trees meet.
func Tree(t *rapid.T, name string) []state.Node {
	var nodes []state.Node
	var fill func(prefix string, depth int)
	fill = func(prefix string, depth int) {
		for _, n := range []string{"a", "a-", "b"} {
			path := prefix + n
			switch rapid.IntRange(0, 4).Draw(t, name+path) {
			case 0:
				f := File(path, rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "data"))
				f.Modified = rapid.Int64Range(-9e18, 9e18).Draw(t, "modified")
				if rapid.Bool().Draw(t, "exec") {
					f.Mode = 0o755
				}
				nodes = append(nodes, f)
			case 1:
				nodes = append(nodes, state.Node{Path: path, Kind: state.Symlink, Hashed: true,
					Target: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "target")})
			case 2:
				if depth < 2 {
					nodes = append(nodes, state.Node{Path: path, Kind: state.Dir, Mode: 0o755, Hashed: true})
					fill(path+"/", depth+1)
				}
			}
		}
	}
	fill("", 0)
	state.SortNodes(nodes)
	return nodes
}

// FileJSON returns an empty file of a state. path is a JSON string.
func FileJSON(path string) string {
	return fmt.Sprintf(`{"path":%s,"checksum":"d41d8cd98f00b204e9800998ecf8427e","size":0,"modified_at":1767323045}`, path)
}

// JSON returns a state with the given files. more is what follows them.
func JSON(files, more string) string {
	return `{"version":"1.0","last_synced_at":1767323045,"files":[` + files + `]` + more + `}`
}

// Hostile returns states that write outside the root or exhaust the reader, by name. With [state.Limits].Entries of 1000
// all of them must be refused.
func Hostile() map[string]string {
	replace := func(old, new string) string { return JSON(strings.Replace(FileJSON(`"f"`), old, new, 1), "") }
	all := map[string]string{
		"version":  `{"version":"2.0","files":[]}`,
		"checksum": replace("d41d", "zz1d"),
		"short":    replace("d41d", ""),
		"negative": replace(`"size":0`, `"size":-1`),
		"huge":     replace(`"size":0`, `"size":9000000000000000000`),
		"too big":  replace(`"size":0`, `"size":99999999999999999999999`),
		"time":     replace(`1767323045`, `"yesterday"`),
		"no time":  replace(`1767323045`, `{}`),
		"base64":   replace(`"size"`, `"path_base64":"Li4vZXNjYXBlZA==","size"`),
		"twice":    JSON(FileJSON(`"f"`)+","+FileJSON(`"f"`), ""),
		"under":    JSON(FileJSON(`"f"`)+","+FileJSON(`"f/g"`), ""),
		"through a symlink": JSON(FileJSON(`"l/escaped"`),
			`,"sluice":{"format":1,"layout":"plain","symlinks":[{"path":"l","target":".."}]}`),
		"mode":     JSON("", `,"sluice":{"format":1,"layout":"plain","folders":[{"path":"d","mode":"07777"}]}`),
		"format":   JSON("", `,"sluice":{"format":9,"layout":"packed"}`),
		"location": JSON("", `,"sluice":{"format":1,"layout":"packed","objects":[{"sha256":"00","size":1}]}`),
		"many":     JSON(strings.TrimSuffix(strings.Repeat(FileJSON(`"f"`)+",", 1001), ","), ""),
		"deep":     JSON(FileJSON(`"`+strings.Repeat("d/", 1500)+`f"`), ""),
		"token": JSON(FileJSON(`"f"`),
			`,"sluice":{"format":1,"layout":"plain","pending":[{"path":"f","over":"a\r\nX-Other: b"}]}`),
	}
	for _, field := range []string{"id", "parent", "floor"} {
		for _, id := range []string{"../../../other/state", "20260101T000000.000000Z", "20260101T000000.000000Z-1/../x", "latest"} {
			all[field+" "+id] = JSON(FileJSON(`"f"`), `,"sluice":{"format":1,"layout":"packed","`+field+`":"`+id+`"}`)
		}
	}
	object := `,"sluice":{"format":1,"layout":"packed","objects":[{"sha256":"` + strings.Repeat("0", 64) + `","size":10,"generation":0}]}`
	for name, at := range map[string]string{"beyond": `[0,8]`, "before": `[0,-1]`, "no object": `[7,0]`, "odd": `[1]`} {
		all["location "+name] = JSON(strings.Replace(FileJSON(`"f"`), `"size":0`,
			`"digest":"`+strings.Repeat("1", 64)+`","size":5,"at":`+at, 1), object)
	}
	for name, path := range map[string]string{
		"absolute": `"/tmp/escaped"`, "up": `"../escaped"`, "up inside": `"a/../../escaped"`, "NUL": `"a\u0000b"`,
		"empty": `""`, "empty segment": `"a//b"`, "dot": `"./a"`, "own": `".sandbox-state.index"`, "trailing": `"a/"`,
		"long": `"` + strings.Repeat("n", 300) + `"`, "own elsewhere": `".Sandbox-State.index"`,
		"own with a long s": `".ſandbox-state"`, "own with invisible characters": `".sandbox\u200c-state.journal"`,
	} {
		all["path "+name] = JSON(FileJSON(path), "")
	}
	return all
}
